"""The ops and values of a module by number: who defines what, who uses it, in the order of the text.

Reading a module through Python bindings takes most of the time of propagation, so each property of an op is read once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.interop.sdy import is_maximal, mesh_from_attr, sharding_from_attr
from autoshard.propagation.mlir.ops import CALL, FUNC, shape_of
from autoshard.propagation.spec import Spec, to_spec
from autoshard.sharding.mesh import Mesh

Shape = tuple[int, ...]


@dataclass
class ModuleIndex:
    """Ops in the order of the text, region ops before their bodies; values by number.

    operations, names, operands, results, inner: by number of the op; operands and results are numbers of values, inner
        is how many ops that follow lie inside.
    values, shapes, uses, users, defined_by: by number of the value; shapes are None for tokens and the like,
        defined_by is -1 for block arguments.
    maximal: meshes that stand for a single device.
    """

    module: ir.Module
    meshes: list[Mesh] = field(default_factory=list)
    mesh_index: dict[str, int] = field(default_factory=dict)
    maximal: set[str] = field(default_factory=set)
    operations: list[ir.Operation] = field(default_factory=list)
    index: dict[ir.Operation, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)
    operands: list[tuple[int, ...]] = field(default_factory=list)
    results: list[tuple[int, ...]] = field(default_factory=list)
    values: list[ir.Value] = field(default_factory=list)
    number: dict[ir.Value, int] = field(default_factory=dict)
    shapes: list[Shape | None] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)
    defined_by: list[int] = field(default_factory=list)
    functions: dict[str, ir.Operation] = field(default_factory=dict)
    calls: dict[str, list[ir.Operation]] = field(default_factory=dict)
    _leaves: dict[str, bool] = field(default_factory=dict)
    _shapes: dict[ir.Type, Shape | None] = field(default_factory=dict)
    _specs: dict[ir.Attribute, Spec | None] = field(default_factory=dict)
    _per_value: dict[ir.Attribute, list[Spec | None]] = field(default_factory=dict)

    @staticmethod
    def of(module: ir.Module) -> "ModuleIndex":
        """The index of a module: its meshes, then every op and value in the order of the text."""
        index = ModuleIndex(module)
        for op in module.body.operations:
            if op.operation.name == "sdy.mesh":
                index._add_mesh(op.operation)
        for op in module.body.operations:
            index._collect(op.operation)
        return index

    def _add_mesh(self, op: ir.Operation) -> None:
        name = ir.StringAttr(op.attributes["sym_name"]).value
        self.mesh_index[name] = len(self.meshes)
        if is_maximal(op.attributes["mesh"]):
            self.maximal.add(name)
            self.meshes.append(Mesh((), (), name, (0,)))  # a device and no axes: the mark of a maximal mesh
        else:
            self.meshes.append(mesh_from_attr(op.attributes["mesh"], name))

    def _collect(self, op: ir.Operation) -> None:
        name = op.name
        if name == "sdy.mesh":
            return
        at = self.index[op] = len(self.operations)
        self.operations.append(op)
        self.names.append(name)
        self.inner.append(0)
        if name == FUNC:
            self.functions[ir.StringAttr(op.attributes["sym_name"]).value] = op
        elif name == CALL:
            self.calls.setdefault(ir.FlatSymbolRefAttr(op.attributes["callee"]).value, []).append(op)
        number, uses, users = self.number, self.uses, self.users
        operands = tuple([number[v] for v in op.operands])
        self.operands.append(operands)
        for value in operands:
            uses[value] += 1
            users[value].append(at)
        self.results.append(tuple([self._add(r, at) for r in list(op.results)]))
        if self._leaves.get(name):
            return
        regions = list(op.regions)
        self._leaves.setdefault(name, not regions)
        for region in regions:
            for block in region.blocks:
                for arg in block.arguments:
                    self._add(arg, -1)
                for inner in block.operations:
                    self._collect(inner.operation)
        self.inner[at] = len(self.operations) - at - 1

    def _add(self, value: ir.Value, defined_by: int) -> int:
        number = self.number[value] = len(self.values)
        self.values.append(value)
        kind = value.type
        if kind not in self._shapes:
            self._shapes[kind] = shape_of(value)
        self.shapes.append(self._shapes[kind])
        self.uses.append(0)
        self.users.append([])
        self.defined_by.append(defined_by)
        return number

    # questions

    def ops(self, *names: str) -> Iterator[ir.Operation]:
        """The ops with one of these names, in the order of the text."""
        return (op for op, name in zip(self.operations, self.names, strict=True) if name in names)

    def is_unused(self, op: int) -> bool:
        """Whether no result of the op with this number has a use."""
        return not any(self.uses[r] for r in self.results[op])

    def spec(self, attr: ir.Attribute | None) -> Spec | None:
        """The sharding of a ``#sdy.sharding`` attribute in the compact form; None without one."""
        if attr is None:
            return None
        if attr not in self._specs:
            sharding = sharding_from_attr(attr)
            at = self.mesh_index[sharding.mesh_name or ""]
            is_maximal_one = sharding.mesh_name in self.maximal
            self._specs[attr] = Spec(at, ()) if is_maximal_one else to_spec(sharding, self.meshes[at], at)
        return self._specs[attr]

    def specs(self, attr: ir.Attribute | None) -> list[Spec | None]:
        """The shardings of a ``#sdy.sharding_per_value`` attribute; empty without one."""
        if attr is None:
            return []
        if attr not in self._per_value:
            self._per_value[attr] = [self.spec(s) for s in sdy.TensorShardingPerValueAttr(attr).shardings]
        return self._per_value[attr]
