"""Where the shardings of a module stand: a holder for each place, and what to write back to the place.

Holders are for arguments of functions and computations and for results of ops. Values behind a data-flow edge share
the edge's holder.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jaxlib.mlir import ir

from autoshard.propagation.graph import NO_HOLDER, Graph
from autoshard.propagation.mlir.index import ModuleIndex
from autoshard.propagation.mlir.manual import add_free, erase_manual
from autoshard.propagation.mlir.ops import (
    COLLECTIVES,
    DATA_FLOW,
    EDGE,
    FUNC,
    MANUAL,
    NAMED,
    OWN_SHARDING,
    dictionaries,
    get_attribute,
    manual_axes,
)
from autoshard.propagation.spec import Spec, from_spec
from autoshard.sharding.mesh import Mesh

Writer = Callable[[], None]


def spec_text(spec: Spec, mesh: Mesh, name: str) -> str:
    """A spec as text with the name of its mesh, in quotes where MLIR needs them: ``<@mesh, [{"x"}, {?}]>``."""
    return str(from_spec(spec, mesh, name if name.replace("_", "a").replace(".", "a").isalnum() else f'"{name}"'))


@dataclass
class Holders:
    """The holders of a module.

    of: the holder of each value, by number of the value. owners: (value, holder) for the values whose own place the
    holder is. writers: write the final shardings to the module. result_slots: for holders of function results the
    function and the number of the result.
    """

    index: ModuleIndex
    graph: Graph
    of: list[int] = field(default_factory=list)
    owners: list[tuple[int, int]] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    result_slots: dict[int, tuple[str, int]] = field(default_factory=dict)
    _texts: dict[int, str] = field(default_factory=dict)
    _attrs: dict[str, ir.Attribute] = field(default_factory=dict)

    def read(self) -> None:
        """Add all holders but those of function results."""
        index = self.index
        self.of = [NO_HOLDER] * len(index.values)
        for at, (op, name) in enumerate(zip(index.operations, index.names, strict=True)):
            if name == FUNC:
                self._function_arguments(op)
            elif name in (MANUAL, NAMED):
                self._computation(at, op)
            elif name in OWN_SHARDING or name in COLLECTIVES:
                self._single(index.results[at][0], op, OWN_SHARDING.get(name, "out_sharding"))
            elif index.results[at]:
                self._per_value(op, index.results[at], "sdy.sharding")
        for op in index.ops(*DATA_FLOW):
            self._follow_edges(op)
        self.graph.prioritised = [h for v, h in self.owners if self.of[v] == h]
        if len(index.meshes) > 1:
            self._siblings()

    def text(self, holder: int) -> str | None:
        """The sharding of a holder as it stands in an attribute, without ``#sdy.sharding``."""
        number = self.graph.holders[holder] if holder >= 0 else -1
        if number < 0:
            return None
        text = self._texts.get(number)
        if text is None:
            text = self._texts[number] = self._spec_text(self.graph.steps.specs[number])
        return text

    def _spec_text(self, spec: Spec) -> str:
        mesh = self.index.meshes[spec.mesh]
        return spec_text(spec, mesh, mesh.name)

    def new(self, value: int, spec: Spec | None) -> int:
        """Add a holder for a value, and note the value as its owner."""
        shape = self.index.shapes[value]
        holder = self.graph.holder(spec, 0 if shape is None else len(shape))
        self.of[value] = holder
        self.owners.append((value, holder))
        return holder

    def _attribute(self, text: str) -> ir.Attribute:
        attribute = self._attrs.get(text)
        if attribute is None:
            attribute = self._attrs[text] = ir.Attribute.parse(text, self.index.module.context)
        return attribute

    # functions

    def _function_arguments(self, op: ir.Operation) -> None:
        if not list(op.regions[0].blocks):
            return
        args = [self.index.number[a] for a in op.regions[0].blocks[0].arguments]
        attrs = dictionaries(op, "arg_attrs", len(args))
        holders = [self.new(a, self.index.spec(d.get("sdy.sharding"))) for a, d in zip(args, attrs, strict=True)]
        self._write_to_function(op, "arg_attrs", attrs, holders)

    def function_results(self, op: ir.Operation, name: str, shapes: Sequence[tuple[int, ...] | None]) -> list[int]:
        """Holders for the results of a function."""
        attrs = dictionaries(op, "res_attrs", len(shapes))
        slots: list[int] = []
        for number, (shape, attr) in enumerate(zip(shapes, attrs, strict=True)):
            slot = self.graph.holder(self.index.spec(attr.get("sdy.sharding")), len(shape or ()))
            self.graph.prioritised.append(slot)
            self.result_slots[slot] = (name, number)
            slots.append(slot)
        self._write_to_function(op, "res_attrs", attrs, slots)
        return slots

    def _write_to_function(
        self, op: ir.Operation, name: str, attrs: Sequence[dict[str, ir.Attribute]], holders: Sequence[int]
    ) -> None:
        def write() -> None:
            out = []
            for attributes, holder in zip(attrs, holders, strict=True):
                text = self.text(holder)
                entry = dict(attributes)
                if text is not None:
                    entry["sdy.sharding"] = self._attribute(f"#sdy.sharding{text}")
                out.append(ir.DictAttr.get(entry, op.context))
            if out:
                op.attributes[name] = ir.ArrayAttr.get(out, op.context)

        self.writers.append(write)

    # ops

    def _single(self, value: int, op: ir.Operation, attribute: str) -> None:
        holder = self.new(value, self.index.spec(get_attribute(op, attribute)))

        def write() -> None:
            text = self.text(holder)
            if text is not None:
                op.attributes[attribute] = self._attribute(f"#sdy.sharding{text}")

        self.writers.append(write)

    def _per_value(self, op: ir.Operation, values: Sequence[int], attribute: str) -> None:
        specs = self.index.specs(get_attribute(op, attribute))
        if specs and len(specs) != len(values):
            return  # a maximal sharding on an op without results
        holders = [self.new(v, specs[i] if specs else None) for i, v in enumerate(values)]
        before = [self.graph.holders[h] for h in holders]

        def write() -> None:
            if [self.graph.holders[h] for h in holders] == before:
                return
            if any(self.of[v] != h for v, h in zip(values, holders, strict=True)):
                return  # behind an edge: the sharding lives there
            self._set_per_value(op, attribute, values, [self.text(h) for h in holders])

        if values:
            self.writers.append(write)

    def _set_per_value(
        self, op: ir.Operation, attribute: str, values: Sequence[int], texts: Sequence[str | None]
    ) -> None:
        first = next((t for t in texts if t), None)
        if first is None:
            return
        mesh = first.split(",", 1)[0].removeprefix("<@").removesuffix(">")
        shapes = self.index.shapes
        filled = [t or f"<@{mesh}, [{', '.join(['{?}'] * len(shapes[v] or ()))}]>" for v, t in zip(values, texts)]
        op.attributes[attribute] = self._attribute(f"#sdy.sharding_per_value<[{', '.join(filled)}]>")

    def _computation(self, at: int, op: ir.Operation) -> None:
        """Named and manual computations own the shardings of their arguments and results."""
        index = self.index
        args = [index.number[a] for a in op.regions[0].blocks[0].arguments]
        if op.name == NAMED:
            self._per_value(op, args, "in_shardings")
            self._per_value(op, index.results[at], "out_shardings")
            return
        manual = manual_axes(op)
        stated = index.specs(get_attribute(op, "in_shardings"))
        holders = [self.new(a, erase_manual(s, manual, index.meshes)) for a, s in zip(args, stated, strict=True)]

        def write() -> None:
            texts: list[str | None] = []
            for arg, holder, outer in zip(args, holders, stated, strict=True):
                spec = self.graph.spec(holder)
                if self.of[arg] != holder or spec is None or outer is None:
                    return
                texts.append(self._spec_text(add_free(outer, spec, manual, index.meshes)))
            self._set_per_value(op, "in_shardings", args, texts)

        self.writers.append(write)
        self._per_value(op, index.results[at], "out_shardings")

    # data-flow edges

    def _follow_edges(self, op: ir.Operation) -> None:
        """Values behind a data-flow edge share the edge's holder; without an edge, arguments of loops share the
        result's.
        """
        for value in self._targets(op):
            owner = self._owner_of_target(op, value)
            edge = self.edge_on(self.index.number[owner])
            if edge >= 0:
                self.of[self.index.number[value]] = self.of[self.index.results[edge][0]]
            elif owner != value:
                self.of[self.index.number[value]] = self.of[self.index.number[owner]]

    def _targets(self, op: ir.Operation) -> Iterator[ir.Value]:
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.arguments

    def _owner_of_target(self, op: ir.Operation, value: ir.Value) -> ir.Value:
        if op.name == "stablehlo.while" and isinstance(value, ir.BlockArgument):
            return op.results[value.arg_number]
        return value

    def edge_on(self, owner: int) -> int:
        """The data-flow edge that is the only use of a value; -1 for none."""
        index = self.index
        if index.uses[owner] != 1:
            return -1
        user = index.users[owner][0]
        return user if index.names[user] == EDGE else -1

    def _siblings(self) -> None:
        """Which results share one attribute: those of an op that are not behind edges of their own."""
        own = dict(self.owners)
        for name, results in zip(self.index.names, self.index.results, strict=True):
            held = [self.of[r] for r in results if own.get(r, NO_HOLDER) == self.of[r] >= 0]
            if len(held) > 1 and name not in (MANUAL, NAMED):
                self.graph.siblings.update({h: tuple(o for o in held if o != h) for h in held})
