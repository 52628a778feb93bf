"""The layouts that decisions stand for and the copies between them, as quantities."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autoshard.costs.conversions import narrowed_bytes
from autoshard.costs.fusion import Fusion
from autoshard.costs.memory import sizes
from autoshard.costs.padding import Tile, image_dims
from autoshard.costs.reshard import ReshardTable
from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded, taken
from autoshard.formulation.model import Link, Port
from autoshard.formulation.quantities import FREE, Quantities, Quantity
from autoshard.formulation.repeats import Repeats
from autoshard.formulation.tables import distinct
from autoshard.program.program import Program
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.steps import StepKind


class ChosenLayouts:
    """Layouts, bytes and copies of a program's values as quantities over the network.

    links: the link of each use. hubs: for values with a shared form, the link from the definition to it.
    """

    def __init__(
        self,
        program: Program,
        collected: Collected,
        encoded: Encoded,
        repeats: Repeats,
        mesh: AtomMesh,
        tile: Tile | None,
        fusion: Fusion,
        q: Quantities,
    ) -> None:
        self.program, self.collected, self.encoded, self.repeats, self.q = program, collected, encoded, repeats, q
        self.size, self.fusion = sizes(program, mesh, tile, fusion.twice), fusion
        self._images = {} if tile is None else image_dims(program)
        self.links = {link.use: link for link in collected.links if link.use is not None}
        self.hubs = {link.value: link for link in collected.links if link.use is None}
        self._cheapest = q.constant(0)
        self._counted = {
            (collected.links[k].value, collected.links[k].use): counted for k, counted in encoded.counted.items()
        }
        self._ports: dict[tuple[int, int], Quantity] = {}
        self._moves: dict[object, Quantity] = {}
        self._bytes: dict[object, Quantity] = {}
        self._kept: list[object] = []

    def port(self, port: Port) -> Quantity:
        """The layout at a port."""
        node = int(self.repeats.class_of[port.node])
        key = (node, id(port.layouts))
        if key not in self._ports:
            self._kept.append(port.layouts)
            kept = self.encoded.states[port.node].tolist()
            self._ports[key] = self.q.of(node, [port.layouts[k] for k in kept])
        return self._ports[key]

    def definition(self, value: int) -> Quantity:
        """The layout that a value is defined in."""
        return self.port(self.collected.definition[value])

    def stored(self, value: int) -> Quantity | None:
        """The layout in which JAX has an input; None where no choice is uneven."""
        port, own = self.collected.stored.get(value), self.collected.definition[value]
        if port is None or all(port.layouts[k] == own.layouts[k] for k in self.encoded.states[port.node].tolist()):
            return None
        return self.port(port)

    def form(self, value: int) -> Quantity:
        """The layout that the uses of a value start from."""
        return self.port(self.collected.form[value])

    def form_bytes(self, value: int) -> Quantity:
        """Bytes that one device holds of the form: fewer where it is gathered as it is used."""
        port, share = self.collected.form[value], self.fusion.narrowed.get(value, 1.0)
        forms = self.collected.nodes[port.node].defined_in
        if forms is None:
            return self.bytes(value, self.port(port))
        node, kept = int(self.repeats.class_of[port.node]), self.encoded.states[port.node].tolist()
        whole = ((k, self.size(value, port.layouts[k])) for k in kept)
        return self.q.of(node, [held if forms[k] is None else narrowed_bytes(held, share) for k, held in whole])

    def bytes(self, value: int, layout: Quantity) -> Quantity:
        """Bytes that one device holds of a value in a layout, which is a quantity itself."""
        key = (id(layout), self._kind(value))
        if key not in self._bytes:
            self._kept.append(layout)
            self._bytes[key] = self.q.lift(lambda lay: self.size(value, lay), layout)
        return self._bytes[key]

    def _kind(self, value: int) -> object:
        """A key; values with equal keys take the same bytes in the same layout."""
        return self.program.type_of(value), self._images.get(value), value in self.fusion.twice

    def copy(self, link: Link) -> Quantity:
        """The copy along a link: None where source and target are the same.

        Otherwise (bytes of the source, bytes of the copy, whether the source may be a partial sum, whether the copy is
        an all-reduce and nothing else, whether it is gathered as it is used; its bytes are then those of all of it).
        """
        source, target = self.port(link.source), self.port(link.target)
        type_, counted = self.program.type_of(link.value), self._counted.get((link.value, link.use))
        ways, way = [self.encoded.table(type_, link)], self._cheapest
        if counted is not None:  # the state of its node says by which way
            avoided = list(dict.fromkeys(counted.avoided))
            ways = [self.encoded.table(type_, taken(link, atoms)) for atoms in avoided]
            states = [avoided.index(atoms) for atoms in counted.avoided]
            way = self.q.of(int(self.repeats.class_of[counted.node]), states)
        key = (id(source), id(target), id(way), *map(id, ways), self._kind(link.value), link.use is None)
        if key not in self._moves:
            flags = self.q.constant((None, False)) if link.use is not None else self._copies(link)
            goal = self.q.lift(lambda layout, flags, by: (layout, *flags, by), target, flags, way)
            self._moves[key] = self.q.paired(source, goal, *self._compared(link.value, ways, source, goal))
            self._kept += [source, target, way]
        return self._moves[key]

    def _compared(
        self, value: int, ways: Sequence[ReshardTable], source: Quantity, goal: Quantity
    ) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Numbers for all pairs (layout of the source, layout of the goal), and the value of each number, as `copy`
        has it. ways: the tables of the ways that the value may take, by the numbers in the goal.
        """
        table = ways[0]
        ones = [None if lay is FREE else lay for lay in source.values]
        others = [(None, None, False, 0) if other is FREE else other for other in goal.values]
        start = np.array([-1 if lay is None else table.index[lay] for lay in ones])[:, None]
        end = np.array([-1 if other is None else table.index[other] for other, *_ in others])[None]
        same = start == end
        free = (start < 0) | (end < 0) | ~(same | np.isfinite(table.seconds[start, end]))
        free |= np.array([[is_copy is True for _, is_copy, *_ in others]]) & same
        free |= np.array([[is_copy is False for _, is_copy, *_ in others]]) & ~same
        as_used = np.array([is_as_used for _, _, is_as_used, _ in others])
        partial = np.array([[lay is not None and bool(lay.unreduced)] for lay in ones])
        asked = partial & ~same & ~free
        reduced = np.zeros(asked.shape, bool)
        for number, way in enumerate(ways):
            place = np.array([way.index[layout] for layout in table.layouts], np.int64)
            taken_here = np.array([[by == number for *_, by in others]])
            reduced |= self._only_reduced(way, place[start], place[end], asked & taken_here)
        sizes = [
            np.array([0 if layout is None else self.size(value, layout) for layout in layouts], np.int64)
            for layouts in (ones, [other for other, *_ in others])
        ]
        alike = [np.unique(size, return_inverse=True) for size in sizes]
        code = alike[0][1].reshape(-1, 1) * len(alike[1][0]) + alike[1][1].reshape(1, -1)
        code = ((code * 2 + partial) * 2 + reduced) * 2 + as_used[None]
        code = np.where(same, -1, code)
        code = np.where(free, -2, code)
        numbers, first = distinct(code.reshape(-1))
        rows, columns = np.unravel_index(first, code.shape)

        def meant(row: int, column: int) -> Any:
            if code[row, column] < 0:
                return FREE if free[row, column] else None
            return (
                int(sizes[0][row]), int(sizes[1][column]), bool(partial[row, 0]), bool(reduced[row, column]),
                bool(as_used[column]),
            )  # fmt: skip

        return numbers.reshape(code.shape), tuple(map(meant, rows.tolist(), columns.tolist()))

    @staticmethod
    def _only_reduced(table: ReshardTable, start: np.ndarray, end: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """Whether a reshard is an all-reduce and nothing else, for the pairs that are asked for."""
        out = np.zeros(asked.shape, bool)
        rows, columns = np.nonzero(asked)
        begin, at = start[rows, 0], end[0, columns]
        direct = table.predecessors[begin, at] == begin
        pairs = list(zip(begin[direct].tolist(), at[direct].tolist(), strict=True))
        kinds = {pair: table.step(*pair).kind is StepKind.ALL_REDUCE for pair in set(pairs)}
        out[rows[direct], columns[direct]] = [kinds[pair] for pair in pairs]
        return out

    def _copies(self, link: Link) -> Quantity:
        """Whether the state of a hub is a copy beside the definition, and whether it is gathered as it is used."""
        node = link.target.node
        flags, forms = self.collected.nodes[node].copies, self.collected.nodes[node].defined_in
        assert flags is not None
        states = [(bool(flags[k]), forms is not None and forms[k] is not None) for k in self.encoded.states[node]]
        return self.q.of(int(self.repeats.class_of[node]), states)
