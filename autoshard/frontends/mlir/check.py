"""Checking the shardings of an MLIR module: what is wrong, where, and what to try.

Modules that the dialects' own verifiers reject have errors. So do sub-axes that cannot coexist, and sharding groups
whose members cannot be alike. Shardings that the verifiers accept but that make no sense (padding that leaves an axis
nothing to split, group members that contradict each other, meshes over different numbers of devices, manual axes that
no value carries) give warnings, or errors with `strict`; so do those in older forms, which nothing reads.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.errors import AutoshardError
from autoshard.frontends.mlir.advice import ANY_ADVICE, advice_on
from autoshard.frontends.mlir.context import mlir_context, must_be_text
from autoshard.frontends.mlir.older import all_ops, has_older_sharding
from autoshard.frontends.mlir.places import parsed
from autoshard.interop.sdy import is_maximal, mesh_from_attr, sharding_from_attr
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

_LOCATION = re.compile(r"loc\((?:\"[^\"]*\"\()?\"(?P<file>[^\"]*)\":(?P<line>\d+):(?P<column>\d+)")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. line, column: 1-based, 0 where unknown. severity: 'error' or 'warning'."""

    line: int
    column: int
    message: str
    advice: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        where = f"{self.line}:{self.column}: " if self.line else ""
        return f"{where}{self.severity}: {self.message}" + (f"\n  try: {self.advice}" if self.advice else "")


def check_mlir(text: str | bytes, *, strict: bool = False) -> list[Diagnostic]:
    """All faults in the shardings of a module, in the order of the text; empty where it is well-formed.

    strict: warnings become errors. Sub-axes in shardings of arguments and results are reported too, and manual axes
    that an in or out sharding does not mention.
    """
    must_be_text(text)
    context = mlir_context()
    with context:
        try:
            module = parsed(text)
        except ir.MLIRError as error:
            return _from_mlir(error)
        diagnostics = list(_Checker(module, strict).run())
    return sorted(diagnostics, key=lambda d: (d.line, d.column))


def _from_mlir(error: ir.MLIRError) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    for diagnostic in error.error_diagnostics:
        line, column = _place(str(diagnostic.location))
        out.append(Diagnostic(line, column, diagnostic.message, advice_on(diagnostic.message)))
    return out or [Diagnostic(0, 0, str(error), ANY_ADVICE)]


def _place(location: str) -> tuple[int, int]:
    match = _LOCATION.search(location)
    return (int(match["line"]), int(match["column"])) if match else (0, 0)


@dataclass
class _Checker:
    """Walks a module that its verifiers accept."""

    module: ir.Module
    strict: bool

    def run(self) -> Iterator[Diagnostic]:
        self.meshes: dict[str, Mesh] = {}
        self.maximal: set[str] = set()
        self.groups: dict[int, list[tuple[ir.Operation, ir.Operation | None]]] = {}
        yield from self._read_meshes()
        ops = list(all_ops(self.module.operation))
        for op in ops:
            yield from self._op(op)
        yield from self._group_faults()
        unread = [op for op in ops if has_older_sharding(op)]
        if unread:
            count = f"{len(unread)} ops or functions have" if len(unread) > 1 else "this has"
            yield self._at(
                unread[0],
                f"{count} shardings in the form of GSPMD (mhlo.sharding) or of HLO (xla.sdy), which are not read",
                "lower the program with Shardy, as JAX does unless jax_use_shardy_partitioner is off, or write "
                "sdy.sharding",
                soft=True,
            )

    def _at(self, op: ir.Operation, message: str, advice: str, *, soft: bool = False) -> Diagnostic:
        line, column = _place(str(op.location))
        severity = "warning" if soft and not self.strict else "error"
        return Diagnostic(line, column, message, advice or advice_on(message), severity)

    def _read_meshes(self) -> Iterator[Diagnostic]:
        first: Mesh | None = None
        for view in self.module.body.operations:
            op = view.operation
            if op.name != "sdy.mesh":
                continue
            name = ir.StringAttr(op.attributes["sym_name"]).value
            if is_maximal(op.attributes["mesh"]):
                self.maximal.add(name)
                continue
            try:
                mesh = self.meshes[name] = mesh_from_attr(op.attributes["mesh"], name)
            except AutoshardError as error:
                yield self._at(op, str(error), "")
                continue
            if first is None and mesh.axis_names:
                first = mesh
            elif first is not None and mesh.axis_names and mesh.size != first.size:
                yield self._at(
                    op,
                    f"mesh @{name} has {mesh.size} devices but mesh @{first.name} has {first.size}",
                    "all meshes of a module are over the same devices",
                    soft=True,
                )

    def _op(self, op: ir.Operation) -> Iterator[Diagnostic]:
        if op.name == "func.func":
            kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            for name, types, what in (("arg_attrs", kind.inputs, "argument"), ("res_attrs", kind.results, "result")):
                if name in op.attributes:
                    for index, (entry, type_) in enumerate(zip(ir.ArrayAttr(op.attributes[name]), types, strict=True)):
                        entry = ir.DictAttr(entry)
                        if "sdy.sharding" in entry:
                            attr = entry["sdy.sharding"]
                            yield from self._sharding(op, attr, type_, f"{what} {index} of the function", user=True)
            return
        if op.name == "sdy.sharding_group":
            self.groups.setdefault(ir.IntegerAttr(op.attributes["group_id"]).value, []).append((op, _manual_parent(op)))
        if op.name in ("sdy.sharding_constraint", "sdy.reshard", "sdy.data_flow_edge") and "sharding" in op.attributes:
            yield from self._sharding(op, op.attributes["sharding"], op.results[0].type, f"{op.name}", user=True)
        if "sdy.sharding_rule" in op.attributes:
            yield from self._rule(op)
        if op.name == "sdy.manual_computation" and not len(op.operands) and not len(op.results):
            body = op.regions[0].blocks[0].operations
            if len(sdy.ManualAxesAttr(op.attributes["manual_axes"])) and body[0].operation.name != "sdy.return":
                yield self._at(
                    op,
                    "manual axes without any operand or result: nothing tells which mesh they belong to",
                    "pass the values that the body works on through the manual computation",
                    soft=True,
                )
        for name, values in (
            ("sdy.sharding", op.results),
            ("in_shardings", op.operands),
            ("out_shardings", op.results),
        ):
            if name in op.attributes:
                shardings = sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings
                manual = op.name == "sdy.manual_computation"
                for index, (attr, value) in enumerate(zip(shardings, values, strict=False)):
                    what = f"{name} {index} of {op.name}"
                    yield from self._sharding(op, attr, value.type, what)
                    if manual and self.strict:
                        yield from self._manual_axes(op, attr, what)

    def _read(self, attr: ir.Attribute) -> tuple[TensorSharding, Mesh] | None:
        try:
            sharding = sharding_from_attr(attr)
        except AutoshardError:
            return None  # a mesh written inside the sharding
        mesh = self.meshes.get(sharding.mesh_name or "")
        return None if mesh is None else (sharding, mesh)

    def _sharding(
        self, op: ir.Operation, attr: ir.Attribute, type_: ir.Type, what: str, *, user: bool = False
    ) -> Iterator[Diagnostic]:
        read = self._read(attr)
        if read is None or not isinstance(type_, ir.RankedTensorType):
            return
        shape = tuple(type_.shape)
        if any(n < 0 for n in shape):
            return
        sharding, mesh = read
        for message in sharding.violations(mesh, shape, what=what, full_axes_only=self.strict and user):
            soft = "cannot be sharded by" in message or "names whole axes only" in message
            yield self._at(op, message, "", soft=bool(soft))

    def _rule(self, op: ir.Operation) -> Iterator[Diagnostic]:
        """Whether the sizes of a dimension's factors multiply to its size (S2.13); Shardy does not check this."""
        rule = sdy.OpShardingRuleAttr(op.attributes["sdy.sharding_rule"])
        sizes = list(rule.factor_sizes)
        tensors = [
            (f"operand {i}", v, m) for i, (v, m) in enumerate(zip(op.operands, rule.operand_mappings, strict=False))
        ]
        tensors += [
            (f"result {i}", v, m) for i, (v, m) in enumerate(zip(op.results, rule.result_mappings, strict=False))
        ]
        for what, value, mapping in tensors:
            if not isinstance(value.type, ir.RankedTensorType):
                continue
            dims = sdy.TensorMappingAttr(mapping).dim_mappings
            products = [prod(sizes[f] for f in sdy.DimMappingAttr(d).factor_indices) for d in dims]
            if products != list(value.type.shape):
                yield self._at(
                    op,
                    f"{what} has shape {list(value.type.shape)} but the factors of its rule give {products}",
                    "the sizes of a dimension's factors multiply to its size",
                    soft=True,
                )

    def _manual_axes(self, op: ir.Operation, attr: ir.Attribute, what: str) -> Iterator[Diagnostic]:
        read = self._read(attr)
        if read is None:
            return
        axes = sdy.ManualAxesAttr(op.attributes["manual_axes"])
        named = {a.name for a in read[0].axes_used()}
        missing = [axes[i] for i in range(len(axes)) if axes[i] not in named]
        if missing:
            names = ", ".join(f'"{m}"' for m in missing)
            yield self._at(
                op, f"{what}: the manual axes {names} are not mentioned", f"add replicated={{{names}}}", soft=True
            )

    def _group_faults(self) -> Iterator[Diagnostic]:
        for number, members in sorted(self.groups.items()):
            first_op, first_parent = members[0]
            first = first_op.operands[0]
            closed: tuple[str, TensorSharding] | None = None
            for op, parent in members:
                value = op.operands[0]
                if (parent is None) != (first_parent is None) or (parent is not None and parent != first_parent):
                    yield self._at(
                        op,
                        f"the members of sharding group {number} lie in different manual computations",
                        "use one group inside the body and another outside",
                    )
                elif _shape(value.type) != _shape(first.type):
                    yield self._at(
                        op,
                        f"the members of sharding group {number} have different shapes: {first.type} and {value.type}",
                        "a group ties values of one shape",
                    )
                sharding = self._given(value)
                if sharding is not None and not any(d.is_open for d in sharding.dims):
                    if closed is not None and closed[1] != sharding:
                        yield self._at(
                            op,
                            f"sharding group {number} has members with different closed shardings: "
                            f"{closed[1]} of {closed[0]} and {sharding} of {value.get_name()}",
                            "open or drop one of the two",
                            soft=True,
                        )
                    closed = closed or (value.get_name(), sharding)

    def _given(self, value: ir.Value) -> TensorSharding | None:
        attr: ir.Attribute | None = None
        if isinstance(value, ir.BlockArgument):
            owner = value.owner.owner.operation
            if owner.name == "func.func" and "arg_attrs" in owner.attributes:
                entry = ir.DictAttr(ir.ArrayAttr(owner.attributes["arg_attrs"])[value.arg_number])
                attr = entry["sdy.sharding"] if "sdy.sharding" in entry else None  # noqa: SIM401 (DictAttr has no get)
        else:
            owner = value.owner.operation  # pyright: ignore[reportAttributeAccessIssue]
            if "sdy.sharding" in owner.attributes:
                per_value = sdy.TensorShardingPerValueAttr(owner.attributes["sdy.sharding"])
                attr = per_value.shardings[ir.OpResult(value).result_number]
            elif owner.name == "sdy.sharding_constraint":
                attr = owner.attributes["sharding"]
        read = None if attr is None else self._read(attr)
        return None if read is None else read[0]


def _shape(kind: ir.Type) -> tuple[int, ...] | None:
    """The sizes of a ranked tensor, negative ones where they are dynamic; None of other types."""
    return tuple(kind.shape) if isinstance(kind, ir.RankedTensorType) else None


def _manual_parent(op: ir.Operation) -> ir.Operation | None:
    parent = op.parent
    while parent is not None:
        if parent.operation.name == "sdy.manual_computation":
            return parent.operation
        parent = parent.operation.parent
    return None


def has_errors(found: Sequence[Diagnostic]) -> bool:
    """Whether any finding is an error and not a warning."""
    return any(d.severity == "error" for d in found)
