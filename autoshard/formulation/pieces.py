"""Fixed placements piece by piece, and the states that kept pieces leave at the nodes of a model.

A piece is one atom on one factor of an op, or on one dimension of a value. Which pieces fit together at one node can be
seen from its states alone; whether edges and memory allow them takes a search (`planning.keep`).
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
        """Field and key of `Fixed`."""
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
    """These pieces of fixed placements only, in their order."""
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
    """The states that statements and fixed placements leave at the nodes of a model."""

    def __init__(self, collected: Collected, program: Program) -> None:
        self._nodes: Sequence[Node] = collected.nodes
        self._places = places(collected, program)
        self._known: Known = {}
        self._narrowed: dict[int, np.ndarray] = {}

    def decides(self, piece: Piece) -> bool:
        """Whether the model has a node that decides the place of a piece."""
        return piece.place in self._places

    def node(self, piece: Piece) -> int:
        """The number of the node that decides the place of a piece."""
        return self._places[piece.place][0]

    def states(self, piece: Piece) -> tuple[object, bytes]:
        """A key for the states that are left at the node of a piece; equal for nodes that differ in their names
        only.
        """
        index, states = self._places[piece.place]
        return id(states), self._at(index).tobytes()

    def narrowed(self, fixed: Fixed) -> "Left | None":
        """The states left with further placements; None where a node has no state with them."""
        out = Left.__new__(Left)
        out._nodes, out._places, out._known = self._nodes, self._places, self._known
        out._narrowed = dict(self._narrowed)
        for what in FIELDS:
            for key, cut in getattr(fixed, what).items():
                index, states = self._places[what, key]
                fitting = having(states, out._at(index), cut, self._known)
                if fitting is None:
                    return None
                out._narrowed[index] = fitting
        return out

    def fitting(self, wanted: Fixed, kept: Iterable[Piece], groups: Sequence[Group]) -> list[bool]:
        """For each group, in turn, whether its nodes can have it together with the kept pieces and the groups before.

        kept: pieces of `wanted` that hold already. Members of a group have the same states left at their nodes, so only
        the first one is tested.
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
        }  # most nodes can have all of their pieces
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
        """A lower bound on the peak of plans with the states that are left: every decision is taken to hold its
        least.
        """
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
        narrowed = self._narrowed.get(index)
        return states_left(self._nodes[index]) if narrowed is None else narrowed


def grouped(left: Left, class_of: Sequence[int], wanted: Fixed) -> list[Group]:
    """The pieces of placements that a model decides, those of repeated layers together, in order of their first ones.

    class_of: node -> its node in the quotient network. Layers whose nodes want other pieces, or have other states left,
    stay apart.
    """
    groups: dict[object, list[Piece]] = {}
    for piece in pieces_of(wanted):
        if left.decides(piece):
            cut = getattr(wanted, piece.what)[piece.key]
            key = (int(class_of[left.node(piece)]), piece.what, piece.index, piece.atom, cut, left.states(piece))
            groups.setdefault(key, []).append(piece)
    return [tuple(pieces) for pieces in groups.values()]


__all__ = ["FIELDS", "Group", "Left", "Piece", "States", "grouped", "holds", "part_of", "pieces_of"]
