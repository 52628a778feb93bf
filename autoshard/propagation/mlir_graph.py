"""From an MLIR module to the graph of holders and nodes that the engine propagates over, and back.

The module is taken as it is: data-flow edges are those written in it (the front end adds them first), rules are the
``sdy.sharding_rule`` attributes on the ops. The order in which ops are looked at again follows the module's use
lists, because it decides conflicts.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.errors import InputError, UnsupportedError
from autoshard.interop.sdy import is_maximal, mesh_from_attr, sharding_from_attr
from autoshard.propagation.graph import NO_HOLDER, Graph, Node, new_graph
from autoshard.propagation.mlir_ops import (
    BARRIER,
    CALL,
    COLLECTIVES,
    DATA_FLOW,
    EDGE,
    FUNC,
    FUNC_EDGE,
    GROUP,
    MANUAL,
    NAMED,
    OWN_SHARDING,
    TERMINATORS,
    barrier_direction,
    dictionaries,
    erasable,
    get_attribute,
    is_elementwise,
    manual_axes,
    mapping,
    op_class,
    owning_op,
    parent_of,
    shape_of,
    terminator,
)
from autoshard.propagation.spec import Dim, Ref, Refs, Spec, from_spec, to_spec
from autoshard.propagation.step import StepRule, identity_rule
from autoshard.sharding.mesh import Mesh

Text = Callable[[int], str | None]
Writer = Callable[[Text], None]


@dataclass
class ModuleGraph:
    """The graph of one module. `write` puts the final shardings on the module."""

    module: ir.Module
    graph: Graph
    writers: list[Writer] = field(default_factory=list)
    operations: list[ir.Operation] = field(default_factory=list)
    mesh_names: list[str] = field(default_factory=list)
    holder_values: dict[int, ir.Value] = field(default_factory=dict)
    holders: dict[ir.Value, int] = field(default_factory=dict)
    result_slots: dict[int, tuple[str, int]] = field(default_factory=dict)
    _text: dict[int, str] = field(default_factory=dict)

    def holder_of(self, value: ir.Value) -> int:
        return self.holders.get(value, NO_HOLDER)

    def text(self, holder: int) -> str | None:
        """The sharding of a holder as it stands in an attribute, without ``#sdy.sharding``."""
        number = self.graph.holders[holder] if holder >= 0 else -1
        if number < 0:
            return None
        found = self._text.get(number)
        if found is None:
            spec = self.graph.steps.specs[number]
            found = self._text[number] = spec_text(spec, self.graph.meshes[spec.mesh], self.mesh_names[spec.mesh])
        return found

    def write(self, erased: Sequence[int] = ()) -> None:
        for writer in self.writers:
            writer(self.text)
        for node in erased:
            self.operations[node].erase()


def spec_text(spec: Spec, mesh: Mesh, name: str) -> str:
    return str(from_spec(spec, mesh, name if name.replace("_", "a").replace(".", "a").isalnum() else f'"{name}"'))


def build_module_graph(module: ir.Module, groups: Mapping[int, Sequence[ir.Value]] | None = None) -> ModuleGraph:
    """Read holders, nodes and everything that the engine asks for. Rules must have been populated.

    groups: members of sharding groups by id, where they are not what the ``sdy.sharding_group`` ops say.
    """
    with _no_garbage_collection():
        return _Builder(module, groups or {}).build()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Half the time of reading a large module is the collector looking through what is all still in use."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass
class _Builder:
    """Reads one module. Values are keyed by themselves (identity in MLIR)."""

    module: ir.Module
    given_groups: Mapping[int, Sequence[ir.Value]]
    meshes: list[Mesh] = field(default_factory=list)
    mesh_index: dict[str, int] = field(default_factory=dict)
    maximal: set[str] = field(default_factory=set)
    operations: list[ir.Operation] = field(default_factory=list)
    index: dict[ir.Operation, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)
    operands: list[tuple[int, ...]] = field(default_factory=list)
    shapes: dict[ir.Value, tuple[int, ...] | None] = field(default_factory=dict)
    value_index: dict[ir.Value, int] = field(default_factory=dict)
    holders: dict[ir.Value, int] = field(default_factory=dict)
    owners: list[tuple[ir.Value, int]] = field(default_factory=list)
    specs: dict[ir.Attribute, Spec | None] = field(default_factory=dict)
    rules: dict[ir.Attribute, int] = field(default_factory=dict)
    functions: dict[str, ir.Operation] = field(default_factory=dict)
    calls: dict[str, list[ir.Operation]] = field(default_factory=dict)
    out: ModuleGraph = field(init=False)
    graph: Graph = field(init=False)

    def build(self) -> ModuleGraph:
        self._meshes()
        self.graph = new_graph(tuple(self.meshes))
        self.out = ModuleGraph(self.module, self.graph, mesh_names=list(self.mesh_index), holders=self.holders)
        for op in self.module.body.operations:
            self._collect(op.operation)
        self.out.operations = self.operations
        self._values()
        self._read_shardings()
        erasable_ops = erasable(self.module, self.operations, self._is_unused)
        for index, op in enumerate(self.operations):
            self.graph.nodes.append(self._node(index, op, index in erasable_ops))
        self.out.holder_values = {holder: value for value, holder in reversed(self.owners)}
        self.graph.find_notified = lambda holder: tuple(self._notified(self.out.holder_values[holder]))
        self._function_results()
        self._groups()
        return self.out

    # reading

    def _meshes(self) -> None:
        for op in self.module.body.operations:
            if op.operation.name == "sdy.mesh":
                name = ir.StringAttr(op.attributes["sym_name"]).value
                self.mesh_index[name] = len(self.meshes)
                if is_maximal(op.attributes["mesh"]):
                    self.maximal.add(name)
                    self.meshes.append(Mesh((), (), name, (0,)))  # a device and no axes: the mark of a maximal mesh
                else:
                    self.meshes.append(mesh_from_attr(op.attributes["mesh"], name))

    def _collect(self, op: ir.Operation) -> None:
        if op.name == "sdy.mesh":
            return
        if op.name == FUNC:
            self.functions[ir.StringAttr(op.attributes["sym_name"]).value] = op
        elif op.name == CALL:
            self.calls.setdefault(ir.FlatSymbolRefAttr(op.attributes["callee"]).value, []).append(op)
        at = self.index[op] = len(self.operations)
        self.operations.append(op)
        self.names.append(op.name)
        self.inner.append(0)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    self._collect(inner.operation)
        self.inner[at] = len(self.operations) - at - 1

    def _add_value(self, value: ir.Value, defined_by: int) -> None:
        graph = self.graph
        self.value_index[value] = len(graph.uses)
        shape = self.shapes[value] = shape_of(value)
        graph.uses.append(0)
        graph.users.append([])
        graph.defined_by.append(defined_by)
        graph.scalar.append(shape == ())

    def _values(self) -> None:
        for index, op in enumerate(self.operations):
            for region in op.regions:
                for block in region.blocks:
                    for arg in block.arguments:
                        self._add_value(arg, -1)
            for result in op.results:
                self._add_value(result, index)
        for index, op in enumerate(self.operations):
            values = tuple(self.value_index[v] for v in op.operands)
            self.operands.append(values)
            for value in values:
                self.graph.uses[value] += 1
                self.graph.users[value].append(index)

    def _spec(self, attr: ir.Attribute | None) -> Spec | None:
        if attr is None:
            return None
        if attr not in self.specs:
            sharding = sharding_from_attr(attr)
            name = sharding.mesh_name or ""
            if name in self.maximal:
                self.specs[attr] = Spec(self.mesh_index[name], ())
            else:
                index = self.mesh_index[name]
                self.specs[attr] = to_spec(sharding, self.meshes[index], index)
        return self.specs[attr]

    def _new(self, value: ir.Value, spec: Spec | None) -> int:
        shape = self.shapes[value]
        holder = self.graph.holder(spec, 0 if shape is None else len(shape))
        self.holders[value] = holder
        self.owners.append((value, holder))
        return holder

    def _read_shardings(self) -> None:
        """Holders for function arguments, op results and the arguments of computations; what to write back where."""
        for op in self.operations:
            if op.name == FUNC:
                self._function_arguments(op)
            elif op.name in (MANUAL, NAMED):
                self._computation(op)
            elif op.name in OWN_SHARDING or op.name in COLLECTIVES:
                self._single(op, OWN_SHARDING.get(op.name, "out_sharding"))
            elif len(op.results):
                self._per_value(op, list(op.results), "sdy.sharding")
        for op in self.operations:
            if op.name in DATA_FLOW:
                self._follow_edges(op)
        self.graph.prioritised = [h for v, h in self.owners if self.holders[v] == h]
        if len(self.meshes) > 1:
            self._siblings()

    def _siblings(self) -> None:
        """Which results share one attribute: those of an op that are not behind edges of their own."""
        own = dict(self.owners)
        for op in self.operations:
            held = [h for r in op.results if (h := self.holders.get(r)) is not None and h == own[r]]
            if len(held) > 1 and op.name not in (MANUAL, NAMED):
                self.graph.siblings.update({h: tuple(o for o in held if o != h) for h in held})

    def _function_arguments(self, op: ir.Operation) -> None:
        if not op.regions or not list(op.regions[0].blocks):
            return
        args = list(op.regions[0].blocks[0].arguments)
        attrs = dictionaries(op, "arg_attrs", len(args))
        holders = [self._new(a, self._spec(d.get("sdy.sharding"))) for a, d in zip(args, attrs, strict=True)]
        self.out.writers.append(_function_writer(op, "arg_attrs", attrs, holders))

    def _single(self, op: ir.Operation, attribute: str) -> None:
        holder = self._new(op.results[0], self._spec(get_attribute(op, attribute)))

        def write(text: Text) -> None:
            found = text(holder)
            if found is not None:
                op.attributes[attribute] = ir.Attribute.parse(f"#sdy.sharding{found}", op.context)

        self.out.writers.append(write)

    def _per_value(self, op: ir.Operation, values: Sequence[ir.Value], attribute: str) -> None:
        given = self._per_value_specs(op, attribute)
        if given and len(given) != len(values):
            return  # a maximal sharding on an op without results
        holders = [self._new(v, given[i] if given else None) for i, v in enumerate(values)]
        if values:
            self.out.writers.append(self._per_value_writer(op, attribute, values, holders))

    def _per_value_specs(self, op: ir.Operation, attribute: str) -> list[Spec | None]:
        attr = get_attribute(op, attribute)
        return [] if attr is None else [self._spec(s) for s in sdy.TensorShardingPerValueAttr(attr).shardings]

    def _per_value_writer(
        self, op: ir.Operation, attribute: str, values: Sequence[ir.Value], holders: Sequence[int]
    ) -> Callable:
        def write(text: Text) -> None:
            if any(self.holders[v] != h for v, h in zip(values, holders, strict=True)):
                return  # behind an edge: the sharding lives there
            texts = [text(h) for h in holders]
            if not any(texts):
                return
            self._set_per_value(op, attribute, values, texts)

        return write

    def _set_per_value(
        self, op: ir.Operation, attribute: str, values: Sequence[ir.Value], texts: Sequence[str | None]
    ) -> None:
        mesh = next(t for t in texts if t).split(",", 1)[0].removeprefix("<@").removesuffix(">")
        filled = [t or f"<@{mesh}, [{', '.join(['{?}'] * len(shape_of(v) or ()))}]>" for v, t in zip(values, texts)]
        op.attributes[attribute] = ir.Attribute.parse(f"#sdy.sharding_per_value<[{', '.join(filled)}]>", op.context)

    def _computation(self, op: ir.Operation) -> None:
        """Named and manual computations own the shardings of their arguments and results."""
        args = list(op.regions[0].blocks[0].arguments)
        results = list(op.results)
        if op.name == NAMED:
            self._per_value(op, args, "in_shardings")
            self._per_value(op, results, "out_shardings")
            return
        manual = manual_axes(op)
        given = self._per_value_specs(op, "in_shardings")
        holders = [self._new(a, self._erase_manual(s, manual)) for a, s in zip(args, given, strict=True)]

        def write(text: Text) -> None:
            texts: list[str | None] = []
            for arg, holder, outer in zip(args, holders, given, strict=True):
                spec = self.graph.spec(holder)
                if self.holders[arg] != holder or spec is None or outer is None:
                    return
                merged = self._add_free(outer, spec, manual)
                texts.append(spec_text(merged, self.meshes[merged.mesh], self.out.mesh_names[merged.mesh]))
            if texts:
                self._set_per_value(op, "in_shardings", args, texts)

        self.out.writers.append(write)
        self._per_value(op, results, "out_shardings")

    def _follow_edges(self, op: ir.Operation) -> None:
        """Values behind a data-flow edge share the edge's holder; without an edge, arguments of loops share the
        result's.
        """
        for value in self._targets(op):
            owner = self._owner_of_target(op, value)
            edge = None if owner is None else self._edge_on(owner)
            if edge is not None:
                self.holders[value] = self.holders[edge.results[0]]
            elif owner is not None and owner != value:
                self.holders[value] = self.holders[owner]

    def _targets(self, op: ir.Operation) -> Iterator[ir.Value]:
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.arguments

    def _owner_of_target(self, op: ir.Operation, value: ir.Value) -> ir.Value | None:
        if op.name == "stablehlo.while" and isinstance(value, ir.BlockArgument):
            return op.results[value.arg_number]
        return value

    def _edge_on(self, owner: ir.Value) -> ir.Operation | None:
        """The data-flow edge that is the only use of `owner`."""
        at = self.value_index.get(owner)
        if at is None or self.graph.uses[at] != 1:
            return None
        user = self.graph.users[at][0]
        return self.operations[user] if user >= 0 and self.names[user] == EDGE else None

    # manual computations

    def _is_manual(self, ref: Ref, mesh: int, manual: frozenset[str]) -> bool:
        return self.meshes[mesh].axis_names[ref[0]] in manual

    def _erase_manual(self, spec: Spec | None, manual: frozenset[str]) -> Spec | None:
        if spec is None or not manual:
            return spec

        def free(axes: Refs) -> Refs:
            return tuple(a for a in axes if not self._is_manual(a, spec.mesh, manual))

        dims = tuple(d._replace(axes=free(d.axes)) for d in spec.dims)
        return Spec(spec.mesh, dims, free(spec.replicated), free(spec.unreduced))

    def _add_free(self, outer: Spec, inner: Spec, manual: frozenset[str]) -> Spec:
        """The manual axes of `outer` with the free axes of `inner` behind them."""
        dims = tuple(
            Dim(tuple(a for a in o.axes if self._is_manual(a, outer.mesh, manual)) + i.axes, i.is_open, i.priority)
            for o, i in zip(outer.dims, inner.dims, strict=True)
        )
        return Spec(inner.mesh, dims, outer.replicated, outer.unreduced)

    # nodes

    def _node(self, index: int, op: ir.Operation, erasable: bool) -> Node:
        values = self.operands[index]
        graph = self.graph
        elementwise = is_elementwise(op)
        node = Node(
            (),
            (),
            op=index,
            values=values,
            defines=tuple(self.value_index[r] for r in op.results),
            shared=any(graph.uses[v] != 1 and not graph.scalar[v] for v in values),
            erasable=erasable,
            inner=self.inner[index],
            op_class=op_class(op, elementwise),
            elementwise=elementwise,
        )
        if op.name == EDGE:
            self._edge_node(op, node)
        elif op.name == FUNC_EDGE:
            self._function_edge_node(op, node)
        elif op.name == BARRIER:
            self._identity(node, (op.operands[0],), op.results[0])
            node.allowed = barrier_direction(op)
        else:
            rule = get_attribute(op, "sdy.sharding_rule")
            if rule is not None:
                node.rule = self._rule(rule)
                node.operands = tuple(self._holder(v) for v in op.operands)
                node.results = tuple(self._holder(v) for v in op.results)
        return node

    def _identity(self, node: Node, sources: Sequence[ir.Value], target: ir.Value) -> None:
        shape = shape_of(target)
        if shape is None:
            return
        node.operands = tuple(self._holder(s) for s in sources)
        node.results = (self._holder(target),)
        node.rule = self.graph.steps.rule_number(identity_rule(shape, len(sources)))
        node.heeds_conservative = False

    def _holder(self, value: ir.Value) -> int:
        return self.holders.get(value, NO_HOLDER)

    def _edge_node(self, op: ir.Operation, node: Node) -> None:
        owner = op.operands[0]
        region_op = owning_op(owner)
        self._identity(node, self._sources(region_op, owner), op.results[0])
        if region_op.name != MANUAL:
            return
        manual = manual_axes(region_op)
        if isinstance(owner, ir.BlockArgument):
            outer = self._per_value_specs(region_op, "in_shardings")[owner.arg_number]
            assert outer is not None
            node.before = lambda spec: self._add_free(outer, spec, manual)
            node.after = lambda spec: self._erase_manual(spec, manual) or spec
        else:
            outer = self._per_value_specs(region_op, "out_shardings")[ir.OpResult(owner).result_number]
            assert outer is not None
            node.before = lambda spec: self._erase_manual(spec, manual) or spec
            node.after = lambda spec: self._add_free(outer, spec, manual)

    def _sources(self, op: ir.Operation, owner: ir.Value) -> list[ir.Value]:
        """The values that flow into the targets of an edge."""
        if isinstance(owner, ir.BlockArgument):
            return [op.operands[owner.arg_number]]
        number = ir.OpResult(owner).result_number
        if op.name == "stablehlo.while":
            return [op.operands[number], terminator(op.regions[1]).operands[number]]
        if op.name == "stablehlo.case":
            return [terminator(r).operands[number] for r in op.regions]
        if op.name == "stablehlo.optimization_barrier":
            return [op.operands[number]]
        if op.name in (MANUAL, NAMED):
            return [terminator(op.regions[0]).operands[number]]
        raise UnsupportedError(f"a data-flow edge hangs on {op.name}, which is no data-flow op")

    def _function_edge_node(self, op: ir.Operation, node: Node) -> None:
        operand = op.operands[0]
        if isinstance(operand, ir.BlockArgument):
            name = ir.StringAttr(owning_op(operand).attributes["sym_name"]).value
            number = operand.arg_number
            sources = [c.operands[number] for c in self.calls.get(name, ())]
        else:
            call = owning_op(operand)
            callee = self.functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
            sources = [terminator(callee.regions[0]).operands[operand.result_number]]
        if sources:
            self._identity(node, sources, op.results[0])

    def _rule(self, attr: ir.Attribute) -> int:
        found = self.rules.get(attr)
        if found is None:
            rule = sdy.OpShardingRuleAttr(attr)
            sizes = tuple(rule.factor_sizes)
            special = {
                *rule.reduction_factors,
                *rule.need_replication_factors,
                *rule.permutation_factors,
            }
            step = StepRule(
                sizes,
                tuple(mapping(m) for m in rule.operand_mappings),
                tuple(mapping(m) for m in rule.result_mappings),
                frozenset(rule.blocked_propagation_factors),
                tuple(f not in special for f in range(len(sizes))),
            )
            found = self.rules[attr] = self.graph.steps.rule_number(step)
        return found

    def _is_unused(self, op: ir.Operation) -> bool:
        return all(self.graph.uses[self.value_index[r]] == 0 for r in op.results)

    # what to look at again

    def _notified(self, value: ir.Value) -> list[int]:
        """Nodes to look at again when the sharding of `value` changes, in the order in which they are put on the
        stack.
        """
        out: list[int] = []
        if isinstance(value, ir.BlockArgument):
            out.append(self.index[owning_op(value)])
        else:
            op = owning_op(value)
            if op.name == EDGE:
                region_op = owning_op(op.operands[0])
                if region_op.name == "stablehlo.while":
                    number = op.operands[0].result_number
                    for region in region_op.regions:
                        self._notify_users(region.blocks[0].arguments[number], out, set())
            out.append(self.index[op])
        self._notify_users(value, out, set())
        return out

    def _notify_users(self, value: ir.Value, out: list[int], seen: set[ir.Value]) -> None:
        if value in seen:
            return
        seen.add(value)
        for use in value.uses:
            op = use.owner.operation
            number = use.operand_number
            edge = self._edge_fed_by(op, number)
            if edge is not None:
                out.append(self.index[edge])
            elif op.name == "func.return":
                function = parent_of(op)
                callers = self.calls.get(ir.StringAttr(function.attributes["sym_name"]).value, [])
                for call in reversed(callers):
                    self._notify_users(call.results[number], out, seen)
            elif op.name in TERMINATORS:
                out.append(self.index[parent_of(op)])
            elif op.name == CALL:
                callee = self.functions.get(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
                if callee is not None and list(callee.regions[0].blocks):
                    self._notify_users(callee.regions[0].blocks[0].arguments[number], out, seen)
            else:
                out.append(self.index[op])

    def _edge_fed_by(self, user: ir.Operation, number: int) -> ir.Operation | None:
        """The edge that this use is a source of.

        Operands of named and manual computations are not found, as in Shardy: a change of them does not put the edge
        behind the argument on the worklist again.
        """
        is_terminator = user.name in TERMINATORS
        op = parent_of(user) if is_terminator else user
        if op.name not in DATA_FLOW:
            return None
        if op.name in (MANUAL, NAMED) and not is_terminator:
            return self._edge_on(op.operands[number])
        return self._edge_on(op.results[number]) if number < len(op.results) else None

    # functions, groups, dead ops

    def _function_results(self) -> None:
        """Slots for the results of every function; those of the main one are tied to what it returns."""
        main = next(iter(self.functions.values())) if len(self.functions) == 1 else self.functions.get("main")
        for name, op in self.functions.items():
            if not list(op.regions[0].blocks):
                continue
            returned = list(terminator(op.regions[0]).operands)
            attrs = dictionaries(op, "res_attrs", len(returned))
            slots = []
            for number, (value, attr) in enumerate(zip(returned, attrs, strict=True)):
                shape = shape_of(value)
                slot = self.graph.holder(self._spec(attr.get("sdy.sharding")), len(shape or ()))
                self.graph.prioritised.append(slot)
                self.out.result_slots[slot] = (name, number)
                slots.append(slot)
                if op == main and shape is not None:
                    rule = self.graph.steps.rule_number(identity_rule(shape))
                    self.graph.outputs.append((self._holder(value), slot, rule))
            self.out.writers.append(_function_writer(op, "res_attrs", attrs, slots))

    def _groups(self) -> None:
        members: dict[int, list[int]] = {}
        for op in self.operations:
            if op.name == GROUP:
                holder = self._holder(op.operands[0])
                if holder >= 0:
                    members.setdefault(ir.IntegerAttr(op.attributes["group_id"]).value, []).append(holder)
        for number, values in self.given_groups.items():
            members[number] = [self._holder(v) for v in values]
        for number, holders in sorted(members.items()):
            for holder in dict.fromkeys(holders):
                if holder in self.graph.groups:
                    raise InputError(f"a value is in sharding group {number} and in another one; unite the two groups")
            for holder in holders:
                self.graph.groups[holder] = tuple(dict.fromkeys(holders))


def _function_writer(
    op: ir.Operation, name: str, attrs: Sequence[dict[str, ir.Attribute]], holders: Sequence[int]
) -> Callable:
    def write(text: Text) -> None:
        out = []
        for given, holder in zip(attrs, holders, strict=True):
            found = text(holder)
            entry = dict(given)
            if found is not None:
                entry["sdy.sharding"] = ir.Attribute.parse(f"#sdy.sharding{found}", op.context)
            out.append(ir.DictAttr.get(entry, op.context))
        if out:
            op.attributes[name] = ir.ArrayAttr.get(out, op.context)

    return write
