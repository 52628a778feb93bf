"""Placements piece by piece, and what those that are kept leave of a model's decisions.

A piece is one atom on one factor of an op, or on one dimension of a value. Which pieces one node can have beside each
other is seen from its states alone; what edges and memory say is for a search (`planning.keep`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoshard.formulation.collect import Collected
from autoshard.formulation.fixed import Cut, Fixed, Known, States, has, having, held, places, states_left
from autoshard.formulation.model import Node
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule

FIELDS = ("values", "ops", "forms", "outputs")
"""The order of pieces: what comes in and crosses regions, ops, shared forms, what goes out."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An atom at a place: field and key of `Fixed`, and which factor or dimension."""

    what: str
    key: int
    index: int
    atom: int

    @property
    def place(self) -> tuple[str, int]:
        return self.what, self.key


Group = tuple[Piece, ...]
"""Pieces that hold or fall together: those of repeated layers, which share their decisions."""


def pieces_of(fixed: Fixed) -> list[Piece]:
    """All pieces: by field, in the order of the program, by factor or dimension, major to minor.

    >>> [(p.key, p.index, p.atom) for p in pieces_of(Fixed(ops={7: ((), (2,)), 3: ((0, 1), ())}))]
    [(3, 0, 0), (3, 0, 1), (7, 1, 2)]
    """
    return [
        Piece(what, key, index, atom)
        for what in FIELDS
        for key, cut in sorted(getattr(fixed, what).items())
        for index, atoms in enumerate(cut)
        for atom in atoms
    ]


def part_of(fixed: Fixed, pieces: Iterable[Piece]) -> Fixed:
    """Of placements these pieces only, in the order that they have there."""
    chosen: dict[str, dict[int, set[tuple[int, int]]]] = {what: {} for what in FIELDS}
    for piece in pieces:
        chosen[piece.what].setdefault(piece.key, set()).add((piece.index, piece.atom))

    def part(what: str) -> dict[int, Cut]:
        whole: Mapping[int, Cut] = getattr(fixed, what)
        return {
            key: tuple(tuple(a for a in atoms if (k, a) in some) for k, atoms in enumerate(whole[key]))
            for key, some in sorted(chosen[what].items())
        }

    return Fixed(**{what: part(what) for what in FIELDS})


def holds(schedule: Schedule, fixed: Fixed) -> bool:
    """Whether a schedule has all of the placements."""
    return all(has(held(schedule, what, key), cut) for what in FIELDS for key, cut in getattr(fixed, what).items())


class Left:
    """The states that statements and placements leave at the nodes of a model."""

    def __init__(self, collected: Collected, program: Program) -> None:
        self._nodes: Sequence[Node] = collected.nodes
        self._places = places(collected, program)
        self._known: Known = {}
        self._narrowed: dict[int, np.ndarray] = {}

    def decides(self, piece: Piece) -> bool:
        """Whether the model has a decision of its own there."""
        return piece.place in self._places

    def node(self, piece: Piece) -> int:
        return self._places[piece.place][0]

    def states(self, piece: Piece) -> tuple[object, bytes]:
        """What is left at the node of a piece; equal for nodes that differ in their names only."""
        index, states = self._places[piece.place]
        return id(states), self._at(index).tobytes()

    def narrowed(self, fixed: Fixed) -> "Left | None":
        """With placements too; None where a node has no state with them."""
        out = Left.__new__(Left)
        out._nodes, out._places, out._known = self._nodes, self._places, self._known
        out._narrowed = dict(self._narrowed)
        for what in FIELDS:
            for key, cut in getattr(fixed, what).items():
                index, states = self._places[what, key]
                found = having(states, out._at(index), cut, self._known)
                if found is None:
                    return None
                out._narrowed[index] = found
        return out

    def fitting(self, wanted: Fixed, kept: Iterable[Piece], groups: Sequence[Group]) -> list[bool]:
        """For each group, one after the other, whether its nodes can have it beside what is kept and the ones before.

        kept: pieces of `wanted` that hold already. Members of a group find the same at their nodes, so the first one
        speaks for all.
        """
        first = [group[0] for group in groups]
        here = {piece.place for piece in first}
        chosen: dict[tuple[str, int], list[Piece]] = {}
        for piece in kept:
            if piece.place in here:
                chosen.setdefault(piece.place, []).append(piece)
        asked: dict[tuple[str, int], list[Piece]] = {}
        for piece in first:
            asked.setdefault(piece.place, []).append(piece)
        whole = {
            place: self._can(wanted, [*chosen.get(place, ()), *pieces]) for place, pieces in asked.items()
        }  # most nodes can have all that is asked of them
        out: list[bool] = []
        for piece in first:
            fits = whole[piece.place]
            if not fits:
                before = chosen.setdefault(piece.place, [])
                fits = self._can(wanted, [*before, piece])
                if fits:
                    before.append(piece)
            out.append(fits)
        return out

    def least_bytes(self) -> int:
        """No plan with what is left holds less at its fullest moment: every decision is taken to hold its least."""
        delta: dict[int, int] = {}
        for index, node in enumerate(self._nodes):
            for start, stop, amounts in node.usages:
                if start < stop:
                    least = int(np.ceil(np.asarray(amounts)[self._at(index)].min()))
                    delta[start] = delta.get(start, 0) + least
                    delta[stop] = delta.get(stop, 0) - least
        return int(max(np.cumsum([delta[time] for time in sorted(delta)]), default=0))

    def _can(self, wanted: Fixed, pieces: Collection[Piece]) -> bool:
        place = next(iter(pieces)).place
        index, states = self._places[place]
        cut = getattr(part_of(wanted, pieces), place[0])[place[1]]
        return having(states, self._at(index), cut, self._known) is not None

    def _at(self, index: int) -> np.ndarray:
        found = self._narrowed.get(index)
        return states_left(self._nodes[index]) if found is None else found


def grouped(left: Left, class_of: Sequence[int], wanted: Fixed) -> list[Group]:
    """The pieces of placements that a model decides, those of repeated layers together, in order of their first ones.

    class_of: node -> the decision that it shares. Layers at whose nodes something else is wanted or left stay apart.
    """
    found: dict[object, list[Piece]] = {}
    for piece in pieces_of(wanted):
        if left.decides(piece):
            cut = getattr(wanted, piece.what)[piece.key]
            key = (int(class_of[left.node(piece)]), piece.what, piece.index, piece.atom, cut, left.states(piece))
            found.setdefault(key, []).append(piece)
    return [tuple(pieces) for pieces in found.values()]


__all__ = ["FIELDS", "Group", "Left", "Piece", "States", "grouped", "holds", "part_of", "pieces_of"]
