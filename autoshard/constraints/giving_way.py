"""Further pins beside those that hold already: what contradicts them gives way, what is said already is left out."""

from collections.abc import Sequence
from dataclasses import replace

from autoshard.constraints.matching import conflict
from autoshard.constraints.pin import MatchedPin
from autoshard.program.program import BORDER, Program


def displaced(pins: Sequence[MatchedPin], by: Sequence[MatchedPin]) -> tuple[list[MatchedPin], list[MatchedPin]]:
    """`pins` without what contradicts `by`, and the pins that lost a value in this way, as they were."""
    kept: list[MatchedPin] = []
    lost: list[MatchedPin] = []
    for pin in pins:
        against = [new for new in by if _meets(pin, new) and conflict(pin.sharding, new.sharding)]
        if not against:
            kept.append(pin)
            continue
        lost.append(pin)
        values = tuple(v for v in pin.values if not any(v in new.values for new in against))
        outputs = tuple(k for k in pin.outputs if not any(k in new.outputs for new in against))
        if values or outputs:
            kept.append(replace(pin, values=values, outputs=outputs))
    return kept, lost


def added(stated: Sequence[MatchedPin], pins: Sequence[MatchedPin]) -> tuple[MatchedPin, ...]:
    """Those of further pins that say what statements on another order of the devices do not say already.

    Such a statement settles where its values are, and a pin that it agrees with means the same order.
    """
    moved = [pin for pin in displaced(stated, pins)[0] if pin.moves]
    values, outputs = {v for pin in moved for v in pin.values}, {k for pin in moved for k in pin.outputs}
    left = (
        replace(
            pin, values=tuple(v for v in pin.values if v not in values),
            outputs=tuple(k for k in pin.outputs if k not in outputs),
        )
        for pin in pins
    )  # fmt: skip
    return tuple(pin for pin in left if pin.values or pin.outputs)


def with_further(stated: Sequence[MatchedPin], pins: Sequence[MatchedPin]) -> tuple[MatchedPin, ...]:
    """What is stated with further pins in place of what contradicts them."""
    return (*displaced(stated, pins)[0], *added(stated, pins))


def behind_borders(pin: MatchedPin, stated: Sequence[MatchedPin], program: Program) -> MatchedPin:
    """A further pin of arguments or results, made one of the values behind them too where a sharding of a `jit` around
    the program gives way to it: such a sharding is of both, and half of it would still move them.
    """
    lost = displaced(stated, [pin])[1]
    behind: dict[int, None] = {}
    for op, _ in program.walk():
        if BORDER in op.attrs:
            (operand,), (result,) = op.operands, op.results
            slots = {k for k in pin.outputs if program.body.results[k] == result}
            if any(result in was.values and (operand in was.values or slots & set(was.outputs)) for was in lost):
                behind |= {result: None} if operand in pin.values or slots else {}
    return replace(pin, values=tuple(dict.fromkeys((*pin.values, *behind))))


def _meets(pin: MatchedPin, other: MatchedPin) -> bool:
    return bool(set(pin.values) & set(other.values) or set(pin.outputs) & set(other.outputs))
