"""The layouts that decisions stand for, as quantities, and what copies between them are like."""

from typing import Any

import numpy as np

from autoshard.costs.memory import sizes
from autoshard.costs.padding import Tile, image_dims
from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded
from autoshard.formulation.model import Link, Port
from autoshard.formulation.quantities import FREE, Quantities, Quantity
from autoshard.formulation.repeats import Repeats
from autoshard.program.program import Program
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import StepKind


class ChosenLayouts:
    """links: how each use is reached; hubs: the shared form of a value."""

    def __init__(
        self,
        program: Program,
        collected: Collected,
        encoded: Encoded,
        repeats: Repeats,
        mesh: AtomMesh,
        tile: Tile | None,
        q: Quantities,
    ) -> None:
        self.program, self.collected, self.encoded, self.repeats, self.q = program, collected, encoded, repeats, q
        self.size = sizes(program, mesh, tile)
        self._images = {} if tile is None else image_dims(program)
        self.links = {link.use: link for link in collected.links if link.use is not None}
        self.hubs = {link.value: link for link in collected.links if link.use is None}
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
        return self.port(self.collected.definition[value])

    def form(self, value: int) -> Quantity:
        return self.port(self.collected.form[value])

    def bytes(self, value: int, layout: Quantity) -> Quantity:
        key = (id(layout), self._kind(value))
        if key not in self._bytes:
            self._kept.append(layout)
            self._bytes[key] = self.q.lift(lambda lay: self.size(value, lay), layout)
        return self._bytes[key]

    def _kind(self, value: int) -> object:
        """Values of one kind take the same bytes in the same layout."""
        return self.program.type_of(value), self._images.get(value)

    def copy(self, link: Link) -> Quantity:
        """None where source and target of a link are the same, else (bytes of the source, of the copy, whether the
        source may be a partial sum, whether the first step is an all-reduce).
        """
        source, target = self.port(link.source), self.port(link.target)
        table = self.encoded.table(self.program.type_of(link.value), link)
        key = (id(source), id(target), id(table), self._kind(link.value), link.use is None)
        if key not in self._moves:
            copies = self._copies(link) if link.use is None else None

            def compared(one: Layout, other: Layout, is_copy: bool | None) -> Any:
                if is_copy is not None and is_copy != (one != other):
                    return FREE
                if one == other:
                    return None
                if not np.isfinite(table.seconds[table.index[one], table.index[other]]):
                    return FREE
                reduced = bool(one.unreduced)
                return (
                    self.size(link.value, one), self.size(link.value, other), reduced,
                    reduced and table.path(one, other).steps[0].kind is StepKind.ALL_REDUCE,
                )  # fmt: skip

            flags = self.q.constant(None) if copies is None else copies
            self._moves[key] = self.q.lift(compared, source, target, flags)
            self._kept += [source, target]
        return self._moves[key]

    def _copies(self, link: Link) -> Quantity:
        """Whether the state of a hub is a copy beside the definition."""
        node = link.target.node
        flags = self.collected.nodes[node].copies
        assert flags is not None
        kept = self.encoded.states[node]
        return self.q.of(int(self.repeats.class_of[node]), [bool(flags[k]) for k in kept])
