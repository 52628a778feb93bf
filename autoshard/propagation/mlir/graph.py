"""From an MLIR module to the graph of holders and nodes that the engine propagates over, and back.

The module is taken as it is: data-flow edges are those written in it (the front end adds them first), rules are the
``sdy.sharding_rule`` attributes on the ops. The order in which ops are looked at again follows the module's use
lists, because it decides conflicts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from jaxlib.mlir import ir

from autoshard.errors import InputError
from autoshard.garbage import uncollected
from autoshard.propagation.graph import NO_HOLDER, Graph, new_graph
from autoshard.propagation.mlir.holders import Holders
from autoshard.propagation.mlir.index import ModuleIndex
from autoshard.propagation.mlir.nodes import Nodes
from autoshard.propagation.mlir.notify import Notify
from autoshard.propagation.mlir.ops import GROUP, erasable, terminator
from autoshard.propagation.step import identity_rule


@dataclass
class ModuleGraph:
    """The graph of one module. `write` puts the final shardings on the module."""

    index: ModuleIndex
    holders: Holders
    graph: Graph

    @property
    def operations(self) -> list[ir.Operation]:
        """The ops of the module in the order of the text; a node has the number of its op."""
        return self.index.operations

    @property
    def mesh_names(self) -> list[str]:
        """Names of the module's meshes, in the order of their numbers in specs."""
        return list(self.index.mesh_index)

    @property
    def result_slots(self) -> dict[int, tuple[str, int]]:
        """Holders of function results: the function and the number of the result."""
        return self.holders.result_slots

    @cached_property
    def holder_values(self) -> dict[int, ir.Value]:
        """For each holder the value whose own place it is: an argument, a result or a data-flow edge."""
        return {holder: self.index.values[value] for value, holder in reversed(self.holders.owners)}

    def held(self) -> Iterator[tuple[ir.Value, int]]:
        """All values that have a holder."""
        return ((v, h) for v, h in zip(self.index.values, self.holders.of, strict=True) if h >= 0)

    def holder_of(self, value: ir.Value) -> int:
        """The holder of a value; `NO_HOLDER` for values that cannot have a sharding."""
        number = self.index.number.get(value)
        return NO_HOLDER if number is None else self.holders.of[number]

    def text(self, holder: int) -> str | None:
        """The sharding of a holder as it stands in an attribute, without ``#sdy.sharding``."""
        return self.holders.text(holder)

    def write(self, erased: Sequence[int] = ()) -> None:
        """Put the shardings of the holders on the module, then erase the dead ops with these numbers."""
        with uncollected():
            for writer in self.holders.writers:
                writer()
            for node in erased:
                self.operations[node].erase()


def build_module_graph(module: ir.Module, groups: Mapping[int, Sequence[ir.Value]] | None = None) -> ModuleGraph:
    """Read holders, nodes and groups of a module; its ops must have their ``sdy.sharding_rule`` attributes already.

    groups: members of sharding groups by id, where they differ from the module's ``sdy.sharding_group`` ops.
    """
    with uncollected():
        index = ModuleIndex.of(module)
        graph = new_graph(tuple(index.meshes))
        holders = Holders(index, graph)
        holders.read()
        built = ModuleGraph(index, holders, graph)
        graph.uses, graph.users, graph.defined_by = index.uses, index.users, index.defined_by
        graph.scalar = [shape == () for shape in index.shapes]
        removable = erasable(module, index.operations, index.is_unused)
        make = Nodes(index, holders, graph).node
        graph.nodes = [make(at, op, at in removable) for at, op in enumerate(index.operations)]
        notify = Notify(index, holders)
        graph.find_notified = lambda holder: notify(built.holder_values[holder])
        _function_results(built)
        _groups(built, groups or {})
        return built


def _function_results(built: ModuleGraph) -> None:
    """Slots for the results of every function; those of the main one are tied to what it returns."""
    functions, index, graph = built.index.functions, built.index, built.graph
    main = next(iter(functions.values())) if len(functions) == 1 else functions.get("main")
    for name, op in functions.items():
        if not list(op.regions[0].blocks):
            continue
        returned = [index.number[v] for v in terminator(op.regions[0]).operands]
        slots = built.holders.function_results(op, name, [index.shapes[v] for v in returned])
        for value, slot in zip(returned, slots, strict=True):
            shape = index.shapes[value]
            if op == main and shape is not None:
                rule = graph.steps.rule_number(identity_rule(shape))
                graph.outputs.append((built.holders.of[value], slot, rule))


def _groups(built: ModuleGraph, given: Mapping[int, Sequence[ir.Value]]) -> None:
    graph, members = built.graph, dict[int, list[ir.Value]]()
    for op in built.index.ops(GROUP):
        if built.holder_of(op.operands[0]) >= 0:
            members.setdefault(ir.IntegerAttr(op.attributes["group_id"]).value, []).append(op.operands[0])
    own, places = dict(built.holders.owners), dict[int, int]()

    def place(value: ir.Value) -> int:
        """The number of a member: its holder, or one of its own where the holder is that of another value."""
        number, holder = built.index.number[value], built.holder_of(value)
        if own.get(number) == holder:
            return holder
        if number not in places:
            places[number] = graph.holder(None, graph.ranks[holder])
            graph.shared[places[number]] = holder
            built.holders.owners.append((number, places[number]))
        return places[number]

    for number, values in sorted({**members, **given}.items()):
        found = tuple(dict.fromkeys(map(place, values)))
        for member in found:
            if member in graph.groups:
                raise InputError(f"a value is in sharding group {number} and in another one; unite the two groups")
            graph.groups[member] = found
