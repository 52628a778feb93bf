"""What a compiler must not reorder, so that a device holds what was planned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from autoshard.errors import InputError
from autoshard.program.program import Program
from autoshard.program.schedule import Use
from autoshard.program.ties import donated_ties

LOOPS = ("scan", "while")


@dataclass(frozen=True, slots=True)
class Order:
    """What lowering keeps in order; nothing by default.

    again: uses whose copy is made again, though an op before has the same copy: the compiler must not keep that one.
    finished: by the id of a loop the values that are made, and moved where that takes no more memory, before it starts;
    larger copies that only the loop reads are made after them. over: outputs that are gathered into the memory of the
    donated input which they replace, and which loops read: else the compiler copies that input before the first loop.
    could_hold_bytes: what one device may hold at the peak where the compiler orders these as it likes.
    """

    again: frozenset[Use] = frozenset()
    finished: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    over: frozenset[int] = frozenset()
    could_hold_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.again or self.finished or self.over)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for plan.json."""
        return {
            "could_hold_bytes": self.could_hold_bytes,
            "again": [{"op": u.op, "slot": u.slot, "region": u.region} for u in sorted(self.again)],
            "finished": [{"op": op, "values": list(values)} for op, values in sorted(self.finished.items())],
            "over": sorted(self.over),
        }


NOTHING: Final = Order()


def order_from_json(data: Mapping[str, Any] | None, program: Program) -> Order:
    """The ``order`` of plan.json (None: nothing); `InputError` where the program has no such use, loop or value."""
    if data is None:
        return NOTHING
    try:
        again = frozenset(Use(use["op"], use["slot"], use["region"]) for use in data["again"])
        finished = {loop["op"]: tuple(loop["values"]) for loop in data["finished"]}
        over = frozenset(data["over"])
        could_hold_bytes = int(data["could_hold_bytes"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the plan is damaged: order: {type(error).__name__} {error}") from None
    wrong: Sequence[object] = [use for use in again if not use.is_in(program)]
    if not wrong:
        wrong = [f"loop {op}" for op in finished if op not in program.ops or program.ops[op].kind not in LOOPS]
    if not wrong:
        known = range(len(program.values))
        wrong = [f"value {v}" for values in finished.values() for v in values if v not in known]
    if not wrong:
        wrong = [f"output {slot} in the place of a donated input" for slot in over if slot not in donated_ties(program)]
    if wrong:
        raise InputError(f"plan: the program has no {wrong[0]}, which is to be kept in order")
    return Order(again, finished, over, could_hold_bytes)


def apart_from_json(data: Any, program: Program) -> frozenset[int]:
    """The ``apart`` of plan.json, values that what reads them is not fused with (None: none); `InputError` where the
    program has no such value.
    """
    values = () if data is None else data
    if not isinstance(values, Sequence) or any(v not in range(len(program.values)) for v in values):
        raise InputError(f"the plan is damaged: apart is {data!r}, not a list of values of the program")
    return frozenset(values)
