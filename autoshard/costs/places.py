"""Where arrays have to lie in the end: outputs in the place of donated inputs, next carries in the buffers of a loop.

Such an array is written over the one whose place it takes, and over none whose place another takes: there it would be
in the way. ``lambda a, b: (b, 2 * b - a)`` with both donated computes the second output beside `a` and `b`: its place
is that of `b`, which goes to the place of `a`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoshard.costs.critical import carries_of
from autoshard.program.program import Program
from autoshard.program.ties import donated_ties


@dataclass(frozen=True, slots=True)
class Places:
    """own[value]: the arrays whose place it takes in the end, of values that are handed on. claimed: all of these.
    parts: rolls of an array that is rolled along the same dimension more than once; a TPU holds each in two parts.
    """

    own: Mapping[int, frozenset[int]]
    claimed: frozenset[int]
    parts: frozenset[int]

    def is_free(self, array: int, result: int) -> bool:
        """Whether a result may be written over an array that dies there."""
        return array not in self.parts and self._is_own(array, result)

    def _is_own(self, array: int, result: int) -> bool:
        return array not in self.claimed or result not in self.own or array in self.own[result]


def places_of(program: Program) -> Places:
    """The places of a program's outputs, and of what its loops hand on."""
    own: dict[int, frozenset[int]] = {}
    rolled: dict[tuple[int, frozenset[int]], list[int]] = {}
    ties = {slot: v for slot, v in donated_ties(program).items() if slot not in program.host_outputs}
    _enter(own, ((value, ties.get(slot)) for slot, value in enumerate(program.body.results)))
    for op, _ in program.walk():
        if op.kind == "roll" and op.rule is not None:
            rolled.setdefault((op.operands[0], op.rule.need_replication), []).extend(op.results)
        _enter(own, carries_of(op))
    parts = frozenset(v for rolls in rolled.values() if len(rolls) > 1 for v in rolls)
    return Places(own, frozenset(v for arrays in own.values() for v in arrays), parts)


def _enter(own: dict[int, frozenset[int]], pairs: Iterable[tuple[int, int | None]]) -> None:
    for value, place in pairs:
        own[value] = own.get(value, frozenset()) | (frozenset() if place is None else {place})
