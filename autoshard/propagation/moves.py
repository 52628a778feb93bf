"""Moves: all that a step at a node depends on besides the shardings of its tensors.

Programs repeat themselves, and most ops may pass nothing on the first rungs. So nodes have a kind, and the move of a
kind on a rung is worked out once instead of at each visit.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from autoshard.propagation.directions import TABLE, Direction, OpClass
from autoshard.propagation.graph import Node
from autoshard.propagation.step import Steps

NOTHING = -1
"""The number of the move of nodes that pass nothing."""

Kind = tuple[int, int, OpClass, bool, Direction, bool, bool]
"""(rule, number of tensors, class, operand with other uses, allowed directions, elementwise, heeds conservative)."""


@dataclass(frozen=True, slots=True)
class Move:
    """A rule with the directions in which each of its factors may pass."""

    rule: int
    directions: tuple[Direction, ...]
    elementwise: bool
    heeds_conservative: bool


@dataclass(slots=True)
class Moves:
    """Kinds of nodes and moves by number."""

    steps: Steps
    moves: list[Move] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    _move_numbers: dict[Move, int] = field(default_factory=dict)
    _kind_numbers: dict[Kind, int] = field(default_factory=dict)

    def set_kind(self, node: Node) -> None:
        """Set the number of the node's kind; call it again whenever the node changes."""
        kind = (
            node.rule, len(node.tensors), node.op_class, node.shared, node.allowed, node.elementwise,
            node.heeds_conservative,
        )  # fmt: skip
        node.kind = self._kind_numbers.setdefault(kind, len(self.kinds))
        if node.kind == len(self.kinds):
            self.kinds.append(kind)

    def find(self, kind: int, level: int | None) -> int:
        """The number of the move of a kind on a rung; `NOTHING` where it passes nothing."""
        rule_number, tensors, op_class, shared, allowed, elementwise, heeds_conservative = self.kinds[kind]
        if rule_number < 0 or tensors < 2:
            return NOTHING
        rule = self.steps.rules[rule_number]
        directions = _directions(op_class, shared, allowed, rule.passes, rule.blocked, level)
        if not any(directions):
            return NOTHING
        move = Move(rule_number, directions, elementwise, heeds_conservative)
        number = self._move_numbers.setdefault(move, len(self.moves))
        if number == len(self.moves):
            self.moves.append(move)
        return number


class MovesOnRung(dict[int, int]):
    """For each kind of nodes the number of its move on one rung, worked out when it is first needed."""

    def __init__(self, moves: Moves, level: int | None) -> None:
        super().__init__()
        self._moves, self._level = moves, level

    def __missing__(self, kind: int) -> int:
        number = self[kind] = self._moves.find(kind, self._level)
        return number


@lru_cache(maxsize=4096)
def _directions(
    op_class: OpClass,
    shared: bool,
    allowed: Direction,
    passes: tuple[bool, ...],
    blocked: frozenset[int],
    level: int | None,
) -> tuple[Direction, ...]:
    any_rung = allowed is not Direction.BOTH  # a barrier's own direction holds on every rung
    return tuple(
        Direction.NONE
        if factor in blocked
        else (Direction.BOTH if level is None or any_rung else TABLE[level, op_class, shared, through]) & allowed
        for factor, through in enumerate(passes)
    )
