"""Quantities that depend on decisions: a table over the states of the few nodes that they depend on.

A quantity of one node has a value for each of its states. `Quantities.lift` applies a function to quantities for every
choice of states: its result depends on all nodes that its arguments depend on, less those that turn out not to matter.
States of a node for which a quantity always has the same value are one *class*. `FREE` is the value for choices that
the network forbids; it may be taken for any other value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final

import numpy as np

from autoshard.formulation.boxes import equal_boxes
from autoshard.formulation.tables import distinct, distinct_rows

MOST_CELLS = 20_000
"""Most entries of a table. Where one would be larger, its arguments become nodes of their own first."""


class _Free:
    def __repr__(self) -> str:
        return "FREE"


FREE: Final = _Free()
"""The value of a quantity where the network forbids what is chosen."""


@dataclass(frozen=True, eq=False)
class Quantity:
    """A value that depends on the states of a few nodes.

    It is values[ids[class of the first node's state, class of the second's, ...]]. classes: per node, state -> class.
    """

    nodes: tuple[int, ...]
    classes: tuple[np.ndarray, ...]
    ids: np.ndarray
    values: tuple[Any, ...]

    @property
    def is_constant(self) -> bool:
        """Whether the quantity depends on no node."""
        return not self.nodes

    @property
    def constant(self) -> Any:
        """The value of a quantity that depends on no node."""
        assert not self.nodes
        return self.values[int(self.ids)]

    def at(self, assignment: Sequence[int]) -> Any:
        """The value under an assignment."""
        return self.values[
            int(self.ids[tuple(int(c[assignment[n]]) for n, c in zip(self.nodes, self.classes, strict=True))])
        ]

    def over(self, nodes: Sequence[int], joint: Sequence[np.ndarray], counts: Sequence[int]) -> np.ndarray:
        """`ids` over more nodes and finer classes; joint: per node, class there -> one state of that class."""
        index = [c[joint[nodes.index(n)]] for n, c in zip(self.nodes, self.classes, strict=True)]
        table = self.ids[np.ix_(*index)] if index else self.ids
        own = set(self.nodes)
        return table.reshape([count if n in own else 1 for n, count in zip(nodes, counts, strict=True)])


@dataclass(frozen=True, eq=False)
class Cut:
    """A node that stands for a quantity: each state is one box of classes of the nodes that the quantity depends on.

    node: its number. boxes: per state, per node of the quantity, which classes the box allows.
    """

    node: int
    quantity: Quantity
    boxes: tuple[tuple[np.ndarray, ...], ...]

    def state(self, assignment: Sequence[int]) -> int:
        """The state of this node that belongs to an assignment of the other nodes."""
        cell = [int(c[assignment[n]]) for n, c in zip(self.quantity.nodes, self.quantity.classes, strict=True)]
        for number, box in enumerate(self.boxes):
            if all(side[k] for side, k in zip(box, cell, strict=True)):
                return number
        return 0


@dataclass(eq=False)
class _Met:
    """Which values some quantities have together: `arguments`, a list of their numbers for each, and where: `cells`.

    smaller: what the table becomes by `Quantities.smaller`, by the numbers of the results.
    """

    nodes: tuple[int, ...]
    classes: Sequence[np.ndarray]
    cells: np.ndarray
    arguments: Sequence[Sequence[int]]
    smaller: dict[tuple[bytes, int], Quantity] = field(default_factory=dict)

    def made(self, q: "Quantities", ids: np.ndarray, values: Mapping[Any, int]) -> Quantity:
        """The quantity with these values, by number, where these arguments are met."""
        key = ids.tobytes(), values.get(FREE, -1)
        if key not in self.smaller:
            self.smaller[key] = q.smaller(self.nodes, self.classes, ids[self.cells], tuple(values))
        return replace(self.smaller[key], values=tuple(values))


class Quantities:
    """Makes quantities over the nodes of a network, and nodes that stand for some of them.

    left: per node, which of its states may be chosen; nothing is said of the others. check: called for every quantity
    that is made of others; may raise to stop.
    """

    def __init__(self, left: Sequence[np.ndarray], check: Callable[[], None] = lambda: None) -> None:
        self.left, self.check = left, check
        self.sizes = [len(states) for states in left]
        self.cuts: list[Cut] = []
        self._joint: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
        self._same: dict[tuple[tuple[int, ...], bytes], np.ndarray] = {}
        self._cut: dict[object, tuple[int, list[int]]] = {}
        self._met_by: dict[tuple[Any, ...], _Met] = {}
        self._kept: list[object] = []
        self._numbers: dict[int, int] = {}

    def constant(self, value: Any) -> Quantity:
        """The quantity that has this value under every assignment."""
        return Quantity((), (), np.zeros((), np.int64), (value,))

    def of(self, node: int, values: Sequence[Any]) -> Quantity:
        """The quantity with these values for the states of one node."""
        known: dict[Any, int] = {}
        left = self.left[node].tolist() if node < len(self.left) else [True] * len(values)
        allowed = (v if may else FREE for v, may in zip(values, left, strict=True))
        ids = np.array([known.setdefault(v, len(known)) for v in allowed], np.int64)
        return self.smaller((node,), [np.arange(len(values))], ids, tuple(known))

    def lift(self, function: Callable[..., Any], *quantities: Quantity) -> Quantity:
        """`function` of the values of these quantities, whatever is decided."""
        self.check()
        parts = list(quantities)
        if all(q.is_constant for q in parts):
            return self.constant(function(*(q.constant for q in parts)))
        while True:
            nodes, joints = self._joints(parts)
            counts = [len(first) for _, first in joints]
            several = [q for q in parts if len(q.nodes) > 1]
            if prod(counts) <= MOST_CELLS or not several:
                break
            whole = max(several, key=lambda q: q.ids.size)
            said = self.cut(whole)
            parts = [said if q is whole else q for q in parts]
        met = self._met(parts, nodes, joints)
        known: dict[Any, int] = {}
        columns = [[q.values[k] for k in own] for q, own in zip(parts, met.arguments, strict=True)]
        results = (FREE if FREE in row else function(*row) for row in zip(*columns, strict=True))
        ids = np.array([known.setdefault(result, len(known)) for result in results], np.int64)
        return met.made(self, ids, known)

    def summed(self, *given: tuple[Quantity, np.ndarray]) -> Quantity:
        """The sums of two quantities whose values are rows of numbers from 0 on, given as one table each."""
        self.check()
        (one, first), (other, second) = given
        nodes, joints = self._joints([one, other])
        met = self._met([one, other], nodes, joints)
        left, right = (np.array(own, np.int64) for own in met.arguments)
        rows = first[left] + second[right]
        rows[_free(one)[left] | _free(other)[right]] = -1
        ids, at = distinct_rows(rows)
        values = [FREE if row and row[0] < 0 else tuple(row) for row in rows[at].tolist()]
        return met.made(self, ids, {value: k for k, value in enumerate(values)})

    def _joints(self, given: Sequence[Quantity]) -> tuple[tuple[int, ...], list[tuple[np.ndarray, np.ndarray]]]:
        """The nodes that these quantities depend on, and for each the classes that tell apart what any of them does."""
        nodes = tuple(sorted({n for q in given for n in q.nodes}))
        return nodes, [
            self.refined([c for q in given for m, c in zip(q.nodes, q.classes, strict=True) if m == n]) for n in nodes
        ]

    def _met(
        self, given: Sequence[Quantity], nodes: tuple[int, ...], joints: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> "_Met":
        """Which values these quantities have together, whatever is decided. Equal layers ask the same again."""
        key = tuple((q.nodes, len(q.values), id(q.ids), *map(id, q.classes)) for q in given)
        if key not in self._met_by:
            firsts = [first for _, first in joints]
            counts = [len(first) for first in firsts]
            codes = np.zeros(counts, np.int64)
            for q in given:
                codes = codes * len(q.values) + q.over(nodes, firsts, counts)
            inverse, at = distinct(codes.reshape(-1))
            numbers, columns = codes.reshape(-1)[at], []
            for q in reversed(given):
                numbers, own = np.divmod(numbers, len(q.values))
                columns.append(own.tolist())
            self._kept.extend((*(q.ids for q in given), *(c for q in given for c in q.classes)))
            self._met_by[key] = _Met(nodes, [c for c, _ in joints], inverse.reshape(counts), columns[::-1])
        return self._met_by[key]

    def paired(self, one: Quantity, other: Quantity, numbers: np.ndarray, values: tuple[Any, ...]) -> Quantity:
        """The quantity values[numbers[index of the value of `one`, index of the value of `other`]]."""
        nodes, joints = self._joints([one, other])
        firsts = [first for _, first in joints]
        counts = [len(first) for first in firsts]
        ids = numbers[one.over(nodes, firsts, counts), other.over(nodes, firsts, counts)]
        return self.smaller(nodes, [c for c, _ in joints], np.asarray(ids, order="C"), values)

    def cut(self, quantity: Quantity) -> Quantity:
        """The same quantity over a single node, which is made for it where it depends on several nodes."""
        if len(quantity.nodes) < 2:
            return quantity
        free = np.array([v is FREE for v in quantity.values], bool)
        flat = quantity.ids.reshape(-1)
        _, first = distinct(flat)
        met = [v for v in flat[first].tolist() if not free[v]]  # the different values, without FREE
        number = np.full(len(quantity.values), -1)
        number[met] = np.arange(len(met))
        key = (quantity.nodes, tuple(map(id, quantity.classes)), number[quantity.ids].tobytes())
        if key not in self._cut:
            boxes, values = equal_boxes(quantity.ids, free)
            node = len(self.sizes)
            self.sizes.append(len(boxes))
            self.cuts.append(Cut(node, quantity, tuple(boxes)))
            self._cut[key] = (node, number[values].tolist())
        node, numbers = self._cut[key]
        return self.of(node, [quantity.values[met[k]] for k in numbers])

    def refined(self, classes: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The coarsest classes that tell apart all states which any of these classes tell apart, and a state of
        each.
        """
        own = {self._number(c): c for c in classes}
        key = tuple(sorted(own))  # in the order in which they were first seen: the same on every run
        if key not in self._joint:
            code = np.zeros_like(own[key[0]])
            for k in key:
                code, first = distinct(code * (int(own[k].max(initial=0)) + 1) + own[k])
            self._joint[key] = (self._shared(code), first)
        return self._joint[key]

    def _number(self, classes: np.ndarray) -> int:
        """A number for every array, in the order in which they were first seen."""
        if id(classes) not in self._numbers:
            self._numbers[id(classes)] = len(self._numbers)
            self._kept.append(classes)  # its id stays its own
        return self._numbers[id(classes)]

    def _shared(self, array: np.ndarray) -> np.ndarray:
        """Equal arrays once, so that they are known by their id."""
        array = np.asarray(array, np.int64, order="C")
        return self._same.setdefault((array.shape, array.tobytes()), array)

    def smaller(
        self, nodes: Sequence[int], classes: Sequence[np.ndarray], ids: np.ndarray, values: tuple[Any, ...]
    ) -> Quantity:
        """The quantity without nodes that do not matter, and with states of equal values in one class."""
        kept, maps = list(nodes), list(classes)
        free = next((k for k, v in enumerate(values) if v is FREE), -1)
        axis = 0
        while axis < len(kept):
            dropped = _without(ids, axis, free)
            if dropped is not None:
                ids = dropped
                del kept[axis], maps[axis]
                continue
            rows = np.ascontiguousarray(np.moveaxis(ids, axis, 0).reshape(ids.shape[axis], -1))
            number, first = distinct_rows(rows)
            if len(first) < len(rows):
                maps[axis] = number[maps[axis]]
                ids = np.take(ids, first, axis)
            axis += 1
        return Quantity(tuple(kept), tuple(self._shared(m) for m in maps), self._shared(ids), values)


def _free(quantity: Quantity) -> np.ndarray:
    """For every value whether it is `FREE`."""
    return np.array([v is FREE for v in quantity.values], bool)


def _without(ids: np.ndarray, axis: int, free: int) -> np.ndarray | None:
    """The table without one axis; None where values other than `free` change along it."""
    if free < 0:
        first = np.take(ids, 0, axis)
        return first if (ids == np.expand_dims(first, axis)).all() else None
    forbidden = ids == free
    high = np.where(forbidden, -1, ids).max(axis)
    low = np.where(forbidden, np.iinfo(np.int64).max, ids).min(axis)
    if ((high != low) & (high >= 0)).any():
        return None
    return np.where(high < 0, free, high)
