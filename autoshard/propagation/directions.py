"""In which direction axes may pass an op, and the order in which classes of ops take part (S2.31, S2.47, S2.48).

Op priorities have five rungs. Each rung lets axes pass more ops than the one before: first pass-through ops whose
operands have no other use, then those with other uses, then every op along factors that its operands and results share
(broadcasts backward only), then everything but broadcasts forward, then everything. `SCHEDULE` lists the rungs.
"""

from collections.abc import Callable
from enum import IntEnum, IntFlag


class Direction(IntFlag):
    """Directions in which axes may pass an op: forward is from operands to results."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


class OpClass(IntEnum):
    """Classes of ops that the order of propagation tells apart."""

    OTHER = 0
    PASS_THROUGH = 1  # elementwise, reshape, transpose, data-flow edges
    SLICE = 2  # dynamic slice and its update
    BROADCAST = 3


Rung = Callable[[OpClass, bool, bool], Direction]
"""(class of the op, whether one of its operands has other uses, whether the factor passes through) -> direction."""


def _single_use(op: OpClass, shared: bool, passes: bool) -> Direction:
    return Direction.NONE if shared else _any_use(op, shared, passes)


def _any_use(op: OpClass, shared: bool, passes: bool) -> Direction:
    if op is OpClass.PASS_THROUGH:
        return Direction.BOTH
    return Direction.FORWARD if op is OpClass.SLICE else Direction.NONE


def _shared_factors(op: OpClass, shared: bool, passes: bool) -> Direction:
    return _no_broadcast_forward(op, shared, passes) if passes else Direction.NONE


def _no_broadcast_forward(op: OpClass, shared: bool, passes: bool) -> Direction:
    return Direction.BACKWARD if op is OpClass.BROADCAST else Direction.BOTH


def _everything(op: OpClass, shared: bool, passes: bool) -> Direction:
    return Direction.BOTH


SCHEDULE: tuple[Rung, ...] = (_single_use, _any_use, _shared_factors, _no_broadcast_forward, _everything)


def _union(op: OpClass, shared: bool, passes: bool, rungs: tuple[Rung, ...]) -> Direction:
    union = Direction.NONE
    for rung in rungs:
        union |= rung(op, shared, passes)
    return union


TABLE: dict[tuple[int, OpClass, bool, bool], Direction] = {
    (level, op, shared, passes): _union(op, shared, passes, SCHEDULE[: level + 1])
    for level in range(len(SCHEDULE))
    for op in OpClass
    for shared in (False, True)
    for passes in (False, True)
}
"""Direction by (rung, class, operand with other uses, pass-through factor): the union of all rungs so far."""
