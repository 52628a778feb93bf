"""MLIR modules as a `Program` with the shardings that they state.

Rules come from Shardy's own registry (the pass that populates them); for elementwise ops that it does not know,
autoshard's rules are used. Calls and named computations are inlined, with a data-flow edge op wherever a value passes
their border: the shardings stated at the border are those of the edge's result. Loops and branches may use values from
outside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.errors import InputError, UnsupportedError
from autoshard.frontends.mlir.context import mlir_context, parse_module, run_passes
from autoshard.frontends.mlir.functions import check_functions
from autoshard.frontends.mlir.rules import combiner_of, free, identity, rule_from_attr
from autoshard.interop.sdy import is_maximal, mesh_from_attr, sharding_from_attr
from autoshard.program.program import Block, Op, Origin, Program, Value
from autoshard.program.rule import ShardingRule
from autoshard.program.types import TensorType
from autoshard.rules import rule_for
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

PREPARE = "symbol-dce,sdy-lift-inlined-meshes,sdy-remove-size-one-axes,sdy-propagate-sharding-from-func-to-call"
_TYPES = {"bf16": "bfloat16", "i1": "bool"}
_KEPT = frozenset({"sharding_constraint", "optimization_barrier", "data_flow_edge"})
_CHLO_NAMES = {"erf", "erfc", "lgamma", "digamma", "square", "tan", "sinh", "cosh", "asin", "acos", "atan", "erf_inv"}


@dataclass(frozen=True)
class MlirProgram:
    """A module as a program.

    meshes: by name. mesh: the mesh that the shardings name (the first where there are several).
    shardings: stated shardings, by value id. outputs: stated shardings of outputs, by index. groups: value ids of
    sharding groups.
    """

    program: Program
    meshes: Mapping[str, Mesh]
    mesh: Mesh | None
    shardings: Mapping[int, TensorSharding]
    outputs: Mapping[int, TensorSharding]
    groups: tuple[tuple[int, ...], ...]


def read_mlir(text: str | bytes) -> MlirProgram:
    """Read StableHLO with sdy shardings, as text or bytecode.

    Raises `InputError` for malformed modules, `UnsupportedError` for ops that a program cannot hold.
    """
    module = parse_module(text, names_code=True)
    check_functions(module)
    with mlir_context(), ir.Location.unknown():
        run_passes(module, f"{PREPARE},func.func(sdy-populate-op-sharding-rules)")
        return _Reader(module).read()


@dataclass
class _Reader:
    """Walks the main function; `env` maps MLIR values to value ids."""

    module: ir.Module
    values: list[Value] = field(default_factory=list)
    op_count: int = 0
    warnings: list[str] = field(default_factory=list)
    shardings: dict[int, TensorSharding] = field(default_factory=dict)
    groups: dict[int, list[int]] = field(default_factory=dict)
    meshes: dict[str, Mesh] = field(default_factory=dict)
    functions: dict[str, ir.Operation] = field(default_factory=dict)
    rules: dict[tuple[ir.Attribute, str], ShardingRule] = field(default_factory=dict)

    def read(self) -> MlirProgram:
        for view in self.module.body.operations:
            op = view.operation
            if op.name == "sdy.mesh" and not is_maximal(op.attributes["mesh"]):
                name = ir.StringAttr(op.attributes["sym_name"]).value
                self.meshes[name] = mesh_from_attr(op.attributes["mesh"], name)
            elif op.name == "func.func":
                self.functions[ir.StringAttr(op.attributes["sym_name"]).value] = op
        main = next(iter(self.functions.values())) if len(self.functions) == 1 else self.functions.get("main")
        if main is None:
            raise InputError(f"no function is called main among {', '.join(self.functions) or 'none'}")
        block = main.regions[0].blocks[0]
        env: dict[ir.Value, int] = {}
        attrs = _entries(main, "arg_attrs", len(block.arguments))
        for index, (arg, entry) in enumerate(zip(block.arguments, attrs, strict=True)):
            value = env[arg] = self._value(f"arg{index}", arg, Origin.INPUT)
            self._state(value, entry.get("sdy.sharding"))
        ops, returned = self._ops(block, env, "")
        results = tuple(env[v] for v in returned)
        outputs: dict[int, TensorSharding] = {}
        for index, entry in enumerate(_entries(main, "res_attrs", len(results))):
            sharding = self._sharding(entry.get("sdy.sharding"))
            if sharding is not None:
                outputs[index] = sharding
        inputs = tuple(env[a] for a in block.arguments)
        program = Program(
            ir.StringAttr(main.attributes["sym_name"]).value,
            tuple(self.values),
            _without_dead(Block(inputs, tuple(ops), results), {v for g in self.groups.values() for v in g}),
            tuple(f"arg{i}" for i in range(len(inputs))),
            tuple(f"out/{i}" for i in range(len(results))),
            warnings=tuple(dict.fromkeys(self.warnings)),
        )
        used = [s.mesh_name for s in (*self.shardings.values(), *outputs.values())]
        name = next((u for u in used if u), next(iter(self.meshes), None))
        mesh = None if name is None else self.meshes.get(name)
        groups = tuple(tuple(dict.fromkeys(v)) for _, v in sorted(self.groups.items()))
        return MlirProgram(program, self.meshes, mesh, self.shardings, outputs, groups)

    # values and shardings

    def _value(self, name: str, value: ir.Value, origin: Origin) -> int:
        kind = value.type
        if not isinstance(kind, ir.RankedTensorType):
            raise UnsupportedError(f"value {name} has type {kind}; a program holds ranked tensors only")
        if any(n < 0 for n in kind.shape):
            raise UnsupportedError(f"value {name} has the dynamic shape {kind}; give static shapes")
        self.values.append(
            Value(len(self.values), name, TensorType(tuple(kind.shape), _dtype(kind.element_type)), origin)
        )
        return len(self.values) - 1

    def _sharding(self, attr: ir.Attribute | None) -> TensorSharding | None:
        if attr is None:
            return None
        sharding = sharding_from_attr(attr)
        if sharding.combiner != "sum":
            raise UnsupportedError(
                f"the sharding {sharding} leaves a {sharding.combiner}imum to be taken over devices; a program holds "
                "partial sums only, so reduce it first (propagate_mlir, check and explain read it)"
            )
        return sharding if sharding.mesh_name in self.meshes else None  # a maximal mesh has no axes

    def _state(self, value: int, attr: ir.Attribute | None) -> None:
        sharding = self._sharding(attr)
        if sharding is not None:
            self.shardings[value] = sharding

    def _stated_results(self, op: ir.Operation, values: Sequence[int], name: str = "sdy.sharding") -> None:
        if name in op.attributes:
            shardings = sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings
            for value, attr in zip(values, shardings, strict=False):
                self._state(value, attr)

    def _new_op(
        self,
        kind: str,
        operands: Sequence[int],
        results: Sequence[int],
        rule: ShardingRule | None,
        op: ir.Operation,
        attrs: Mapping[str, Any] | None = None,
        regions: Sequence[Block] = (),
    ) -> Op:
        number = self.op_count
        self.op_count += 1
        source = str(op.location).removeprefix("loc(").removesuffix(")")
        return Op(number, kind, tuple(operands), tuple(results), rule, source, attrs or {}, tuple(regions))

    # ops

    def _ops(self, block: ir.Block, env: dict[ir.Value, int], path: str) -> tuple[list[Op], list[ir.Value]]:
        out: list[Op] = []
        for view in block.operations:
            op = view.operation
            if op.name in ("func.return", "stablehlo.return", "sdy.return"):
                return out, list(op.operands)
            self._read_op(op, env, path, out)
        return out, []

    def _read_op(self, op: ir.Operation, env: dict[ir.Value, int], path: str, out: list[Op]) -> None:
        match op.name:
            case "sdy.sharding_group":
                number = ir.IntegerAttr(op.attributes["group_id"]).value
                self.groups.setdefault(number, []).append(env[op.operands[0]])
            case "stablehlo.while":
                self._while(op, env, path, out)
            case "stablehlo.case" | "stablehlo.if":
                self._case(op, env, path, out)
            case "stablehlo.optimization_barrier":
                self._barrier(op, env, path, out)
            case "func.call":
                callee = self.functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
                arguments = [e.get("sdy.sharding") for e in _entries(callee, "arg_attrs", len(op.operands))]
                results = _per_value(op, "sdy.sharding", len(op.results))
                self._inline(op, callee.regions[0], arguments, results, env, path, out)
            case "sdy.named_computation":
                arguments = _per_value(op, "in_shardings", len(op.operands))
                results = _per_value(op, "out_shardings", len(op.results))
                self._inline(op, op.regions[0], arguments, results, env, path, out)
            case "sdy.manual_computation":
                self._manual(op, env, path, out)
            case _:
                self._plain(op, env, path, out)

    def _results(self, op: ir.Operation, env: dict[ir.Value, int], path: str) -> list[int]:
        name = op.name.split(".")[-1]
        values = []
        for result in op.results:
            env[result] = self._value(f"{path}{name}_{len(self.values)}", result, Origin.OP)
            values.append(env[result])
        return values

    def _plain(self, op: ir.Operation, env: dict[ir.Value, int], path: str, out: list[Op]) -> None:
        operands = [env[v] for v in op.operands]
        results = self._results(op, env, path)
        kind = op.name.removeprefix("stablehlo.")
        attrs: dict[str, Any] = {}
        if op.name in ("sdy.sharding_constraint", "sdy.reshard"):
            self._state(results[0], op.attributes["sharding"])
            kind = op.name.removeprefix("sdy.")
        else:
            self._stated_results(op, results)
        if op.name == "sdy.propagation_barrier":
            attrs["allowed_direction"] = ir.IntegerAttr(op.attributes["allowed_direction"]).value
            kind = "propagation_barrier"
        if kind == "reshard":  # its operand and its result are apart: nothing passes either way
            attrs["allowed_direction"] = 0
        if op.name == "stablehlo.bitcast_convert":
            attrs["elementwise"] = self._type(operands[0]).shape == self._type(results[0]).shape
        if "has_side_effect" in op.attributes and ir.BoolAttr(op.attributes["has_side_effect"]).value:
            attrs["has_side_effect"] = True
        out.append(self._new_op(kind, operands, results, self._rule(op, kind, operands, results), op, attrs))

    def _type(self, value: int) -> TensorType:
        return self.values[value].type

    def _rule(self, op: ir.Operation, kind: str, operands: Sequence[int], results: Sequence[int]) -> ShardingRule:
        types = [self._type(v) for v in operands], [self._type(v) for v in results]
        if kind in ("propagation_barrier", "reshard"):
            return identity(types[1][0].shape)
        if "sdy.sharding_rule" in op.attributes:
            attr = op.attributes["sdy.sharding_rule"]
            combiner = combiner_of(op)
            key = (attr, kind + combiner)
            if key not in self.rules:
                self.rules[key] = rule_from_attr(attr, kind, combiner, types)
            return self.rules[key]
        name = kind.removeprefix("chlo.")
        if op.name.startswith("chlo.") and name in _CHLO_NAMES:
            return rule_for(name, *types, {}).rule
        if not operands:
            return free(types[1])
        match = rule_for(f"mlir.{kind}", *types, {})
        self.warnings.append(f"op {op.name} has no sharding rule; everything is kept whole around it")
        return match.rule

    # regions

    def _block(self, region: ir.Region, args: Sequence[int], env: dict[ir.Value, int], path: str) -> tuple[Block, dict]:
        inner = dict(env)
        block = region.blocks[0]
        inner.update(zip(block.arguments, args, strict=True))
        ops, returned = self._ops(block, inner, path)
        return Block(tuple(args), tuple(ops), tuple(inner[v] for v in returned)), inner

    def _arguments(self, region: ir.Region, path: str) -> list[int]:
        return [self._value(f"{path}arg_{len(self.values)}", a, Origin.ARG) for a in region.blocks[0].arguments]

    def _while(self, op: ir.Operation, env: dict[ir.Value, int], path: str, out: list[Op]) -> None:
        operands = [env[v] for v in op.operands]
        inner = f"{path}while/"
        blocks = [self._block(r, self._arguments(r, inner), env, inner)[0] for r in op.regions]
        results = self._results(op, env, path)
        self._stated_results(op, results)
        attrs = {"cond_nconsts": 0, "body_nconsts": 0, "trips": None}
        out.append(self._new_op("while", operands, results, None, op, attrs, blocks))

    def _case(self, op: ir.Operation, env: dict[ir.Value, int], path: str, out: list[Op]) -> None:
        blocks = [self._block(r, [], env, f"{path}case/")[0] for r in op.regions]
        results = self._results(op, env, path)
        self._stated_results(op, results)
        out.append(self._new_op("cond", [env[op.operands[0]]], results, None, op, {}, blocks))

    def _barrier(self, op: ir.Operation, env: dict[ir.Value, int], path: str, out: list[Op]) -> None:
        results = self._results(op, env, path)
        self._stated_results(op, results)
        group = self.op_count
        for operand, result in zip(op.operands, results, strict=True):
            rule = identity(self._type(result).shape)
            attrs = {"barrier_group": group}
            out.append(self._new_op("optimization_barrier", [env[operand]], [result], rule, op, attrs))

    def _edge(
        self, source: int, like: ir.Value, attr: ir.Attribute | None, op: ir.Operation, path: str, out: list[Op]
    ) -> int:
        value = self._value(f"{path}edge_{len(self.values)}", like, Origin.OP)
        self._state(value, attr)
        out.append(self._new_op("data_flow_edge", [source], [value], identity(self._type(value).shape), op))
        return value

    def _inline(
        self,
        op: ir.Operation,
        region: ir.Region,
        arguments: Sequence[ir.Attribute | None],
        results: Sequence[ir.Attribute | None],
        env: dict[ir.Value, int],
        path: str,
        out: list[Op],
    ) -> None:
        block = region.blocks[0]
        inner = dict(env)
        for operand, arg, attr in zip(op.operands, block.arguments, arguments, strict=True):
            inner[arg] = self._edge(env[operand], arg, attr, op, path, out)
        ops, returned = self._ops(block, inner, path)
        out += ops
        for value, result, attr in zip(returned, op.results, results, strict=True):
            env[result] = self._edge(inner[value], result, attr, op, path, out)

    def _manual(self, op: ir.Operation, env: dict[ir.Value, int], path: str, out: list[Op]) -> None:
        axes = sdy.ManualAxesAttr(op.attributes["manual_axes"])
        manual = [axes[i] for i in range(len(axes))]
        shardings = [[self._sharding(a) for a in _per_value(op, n, 0)] for n in ("in_shardings", "out_shardings")]
        region = op.regions[0]
        block, _ = self._block(region, self._arguments(region, f"{path}manual/"), {}, f"{path}manual/")
        results = self._results(op, env, path)
        self._stated_results(op, results, "out_shardings")

        def names(sharding: TensorSharding | None) -> tuple[tuple[str, ...], ...]:
            return () if sharding is None else tuple(tuple(a.name for a in d.axes) for d in sharding.dims)

        attrs = {
            "mesh_axes": tuple(manual),
            "in_names": tuple(names(s) for s in shardings[0]),
            "out_names": tuple(names(s) for s in shardings[1]),
        }
        out.append(self._new_op("shard_map", [env[v] for v in op.operands], results, None, op, attrs, [block]))


def _without_dead(block: Block, used: set[int]) -> Block:
    """The block without ops whose results have no use; constraints, region ops and ops with side effects stay."""

    def walk(inner: Block, keep: set[int]) -> Block:
        ops: list[Op] = []
        keep |= set(inner.results)
        for op in reversed(inner.ops):
            stays = op.regions or op.kind in _KEPT or "has_side_effect" in op.attrs
            if not stays and not keep & set(op.results):
                continue
            keep |= set(op.operands)
            if op.regions:
                op = replace(op, regions=tuple(walk(r, keep) for r in op.regions))
            ops.append(op)
        return replace(inner, ops=tuple(reversed(ops)))

    return walk(block, set(used))


def _dtype(kind: ir.Type) -> str:
    text = str(kind)
    if text in _TYPES:
        return _TYPES[text]
    if text.startswith("complex<f"):
        return f"complex{2 * int(text[9:-1])}"
    for short, long in (("f", "float"), ("ui", "uint"), ("i", "int")):
        if text.startswith(short) and text[len(short) :].isdigit():
            return long + text[len(short) :]
    if text.startswith("f8"):
        return "float8_" + text[2:].lower()
    raise UnsupportedError(f"element type {text} is not supported")


def _entries(op: ir.Operation, name: str, count: int) -> list[dict[str, ir.Attribute]]:
    if name not in op.attributes:
        return [{} for _ in range(count)]
    dictionaries = [ir.DictAttr(d) for d in ir.ArrayAttr(op.attributes[name])]
    return [{d[i].name: d[i].attr for i in range(len(d))} for d in dictionaries]


def _per_value(op: ir.Operation, name: str, count: int) -> list[ir.Attribute | None]:
    if name not in op.attributes:
        return [None] * count
    return list(sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings)
