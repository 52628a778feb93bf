"""Which collectives can hide behind other work: it depends on the matmuls before and after the value that they move.

A value without a matmul before it (a parameter, perhaps cast) can be fetched early. A value without a matmul after it
(a gradient on its way to the optimizer, an updated parameter) can be sent late. Both happen while other work runs. A
value with matmuls before and after it, an activation or its gradient, is waited for: its collective is on the critical
path.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from autoshard.costs.work import is_matmul
from autoshard.program.program import Block, Op, Program
from autoshard.program.schedule import PROGRAM

if TYPE_CHECKING:
    from autoshard.costs.price import CommRow


class Role(StrEnum):
    """The sort of value that a collective moves, by its place in the data flow."""

    WEIGHTS = "weights"  # no matmul before: parameters and other inputs
    GRADIENTS = "gradients"  # no matmul after: gradients, updated parameters, losses
    ACTIVATIONS = "activations"  # between matmuls


@dataclass(frozen=True)
class MatmulOrder:
    """Which values and ops have matmuls before or after them.

    before: values that depend on the result of some matmul. after: values that some matmul depends on.
    """

    before: frozenset[int]
    after: frozenset[int]
    leads: frozenset[int]  # ops that are, hold or lead to a matmul

    def role(self, row: "CommRow") -> Role:
        """The role of the value that a row of the price moves."""
        return self.role_of(row.value, row.op)

    def role_of(self, value: int, op: int) -> Role:
        """The role of a value that moves around an op, or around all its uses (`PROGRAM`)."""
        later = value in self.after if op == PROGRAM else op in self.leads
        if value not in self.before:
            return Role.WEIGHTS
        return Role.ACTIVATIONS if later else Role.GRADIENTS


def matmul_order(program: Program) -> MatmulOrder:
    """Find the matmuls before and after every value, loops included (a carry of one iteration feeds the next)."""
    before: set[int] = set()
    while _forward(program.body, before):
        pass
    after: set[int] = set()
    while _backward(program.body, after):
        pass
    leads = {op.id for op, _ in program.walk() if _holds_matmul(op) or any(r in after for r in op.results)}
    return MatmulOrder(frozenset(before), frozenset(after), frozenset(leads))


def _holds_matmul(op: Op) -> bool:
    return is_matmul(op) or any(_holds_matmul(inner) for region in op.regions for inner in region.ops)


def entries_of(op: Op) -> list[tuple[int, int]]:
    """(outer operand, argument of a region that it feeds)."""
    if op.kind == "while":
        cond, body = op.regions
        n_cond, n_body = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        carried = op.operands[n_cond + n_body :]
        return [
            *zip(op.operands[:n_cond], cond.args, strict=False),
            *zip(carried, cond.args[n_cond:], strict=False),
            *zip(op.operands[n_cond : n_cond + n_body], body.args, strict=False),
            *zip(carried, body.args[n_body:], strict=False),
        ]
    skip = 1 if op.kind == "cond" else 0
    return [pair for region in op.regions for pair in zip(op.operands[skip:], region.args, strict=False)]


def _exits(op: Op) -> list[tuple[int, int]]:
    """(result of a region, outer result)."""
    regions = op.regions[1:] if op.kind == "while" else op.regions
    return [pair for region in regions for pair in zip(region.results, op.results, strict=False)]


def carries_of(op: Op) -> list[tuple[int, int]]:
    """(value that an iteration hands back, argument that the next iteration gets)."""
    if op.kind == "scan":
        body, first = op.regions[0], op.attrs["num_consts"]
        return [(body.results[k], body.args[first + k]) for k in range(op.attrs["num_carry"])]
    if op.kind == "while":
        body, first = op.regions[1], op.attrs["body_nconsts"]
        return [(r, body.args[first + k]) for k, r in enumerate(body.results)]
    return []


def _add(found: set[int], values: Sequence[int]) -> bool:
    size = len(found)
    found.update(values)
    return len(found) > size


def _forward(block: Block, before: set[int]) -> bool:
    changed = False
    for op in block.ops:
        if not op.regions:
            if is_matmul(op) or any(v in before for v in op.operands):
                changed |= _add(before, op.results)
            continue
        changed |= _add(before, [inner for outer, inner in entries_of(op) if outer in before])
        for region in op.regions:
            changed |= _forward(region, before)
        changed |= _add(before, [new for old, new in (*_exits(op), *carries_of(op)) if old in before])
    return changed


def _backward(block: Block, after: set[int]) -> bool:
    changed = False
    for op in reversed(block.ops):
        if not op.regions:
            if is_matmul(op) or any(v in after for v in op.results):
                changed |= _add(after, op.operands)
            continue
        changed |= _add(after, [inner for inner, outer in _exits(op) if outer in after])
        changed |= _add(after, [old for old, new in carries_of(op) if new in after])
        for region in op.regions:
            changed |= _backward(region, after)
        changed |= _add(after, [outer for outer, inner in entries_of(op) if inner in after])
    return changed
