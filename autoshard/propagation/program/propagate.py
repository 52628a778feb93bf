"""Propagation over a program: shardings of some values in, a sharding of every value out.

Shardy is the reference: conflicts are settled as Shardy settles them. Example, a matmul on a mesh with axes ``batch``
and ``tensor`` (S2.27): ``[{"batch", ?}, {"tensor", ?}] @ [{?}, {?}]`` gives the right operand ``[{"tensor", ?}, {?}]``
and the result ``[{"batch", ?}, {?}]``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from autoshard.constraints.in_code import groups_in_code, statements_in_code
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Origin, Program
from autoshard.propagation.engine import Strategy, run_propagation
from autoshard.propagation.graph import NO_HOLDER, new_graph
from autoshard.propagation.program.graph import ProgramGraph, build_graph
from autoshard.propagation.program.provenance import Provenance, trace_back
from autoshard.propagation.projection import project
from autoshard.propagation.spec import Ref, Refs, Spec, axis_ref, from_spec, is_prefix, open_spec, overlaps, to_spec
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding


@dataclass(frozen=True)
class Propagated:
    """What propagation found.

    values: for every value that is not a literal its sharding; dimensions nobody closed are open. Values inside
        a `shard_map` are local and have open, empty shardings.
    factors: for every op with a rule the axes that each factor got on *all* tensors that have the factor, major to
        minor. No axis is on two factors, and none is on a factor that must stay whole.
    outputs: shardings of the program's outputs where some were given.
    returned: for each output the sharding with which its value is handed back. It differs from the value's own where a
        constraint takes the value over (a constraint on the result of a loop), and for constants, of which each use has
        its own copy.
    provenance: for every value where each of its axes came from; None unless traced.
    """

    values: dict[int, TensorSharding]
    factors: dict[int, tuple[tuple[AxisRef, ...], ...]]
    outputs: dict[int, TensorSharding]
    returned: tuple[TensorSharding, ...]
    provenance: dict[int, tuple[Provenance, ...]] | None = None


def propagate(
    program: Program,
    mesh: Mesh | Mapping[str, int],
    shardings: Mapping[int | str, TensorSharding | str] | Mapping[int, TensorSharding],
    *,
    strategy: Strategy | str = Strategy.USER_PRIORITY,
    conservative: bool = False,
    groups: Sequence[Sequence[int]] = (),
    own_groups: bool = True,
    apart: bool = False,
    outputs: Mapping[int, TensorSharding] | None = None,
    trace: bool = False,
) -> Propagated:
    """Spread `shardings` (by value id or name), and the constraints that the program itself states, over the program.

    mesh: a `Mesh` or sizes by axis. Shardings are objects or text, ``[{"data"}, {?}]``.
    strategy: basic, aggressive, op-priority or user-priority. conservative: pass no sub-axes.
    groups: sets of values that get one and the same sharding (S4.8). own_groups: also those that the program itself
    makes (`jax.experimental.shard_alike`). apart: members of a group may begin with different closed shardings, which
    they keep; otherwise that is an error.
    outputs: shardings of program outputs by their index; an output's and its value's may differ (a reshard at the end).
    Raises `ShardingError` where a sharding breaks an invariant, `InputError` for an unknown strategy, a bad group.
    """
    chosen = Strategy.from_text(str(strategy))
    if not isinstance(program, Program):
        raise InputError(f"propagate takes a Program, found {type(program).__name__}; trace(f, *specs).program is one")
    mesh = mesh if isinstance(mesh, Mesh) else Mesh.from_dict(mesh)
    stated = {_value_id(program, key): _parsed(given) for key, given in shardings.items()}
    given = {v: pin.sharding for pin in statements_in_code(program, mesh)[0] for v in pin.values} | stated
    specs = {v: _checked(program, mesh, v, s) for v, s in given.items()}
    in_code = [group.values for group in groups_in_code(program)] if own_groups else []
    groups = tuple(dict.fromkeys(tuple(sorted(set(members))) for members in (*groups, *in_code)))
    _check_groups(program, groups)
    out_values = program.body.results
    slots = []
    for index, sharding in sorted((outputs or {}).items()):
        if not 0 <= index < len(out_values):
            raise InputError(f"there is no output {index}; the program has {len(out_values)}, counted from 0")
        what = f"output {program.output_names[index]}"
        sharding.validate(mesh, program.type_of(out_values[index]).shape, what=what)
        slots.append((index, to_spec(sharding.canonical(mesh), mesh, 0)))
    graph = new_graph((mesh,))
    built = build_graph(program, graph, specs, groups, slots)
    if not apart:
        _check_group_conflicts(program, mesh, built, groups)
    initial = list(graph.holders)
    run = run_propagation(graph, chosen, conservative=conservative, trace=trace)
    known: dict[Spec, TensorSharding] = {}

    def sharding_at(holder: int, rank: int) -> TensorSharding:
        spec = graph.spec(holder) or open_spec(0, rank)
        if spec not in known:
            known[spec] = from_spec(spec, mesh, None)
        return known[spec]

    values = {
        value.id: sharding_at(built.holder_of.get(value.id, NO_HOLDER), value.type.rank)
        for value in program.values
        if value.origin is not Origin.LITERAL
    }
    ranks = (program.type_of(value).rank for value in out_values)
    returned = tuple(sharding_at(holder, rank) for holder, rank in zip(built.returned, ranks, strict=True))
    found_outputs = {
        index: sharding_at(slot, graph.ranks[slot])
        for index, (_, slot, _) in zip(sorted(outputs or {}), graph.outputs, strict=True)
    }
    provenance = trace_back(built, run, initial, mesh) if trace else None
    return Propagated(values, _op_factors(built, mesh), found_outputs, returned, provenance)


def _value_id(program: Program, key: int | str) -> int:
    if isinstance(key, str):
        named = [value.id for value in program.values if value.name == key and value.origin is not Origin.LITERAL]
        if not named:
            near = get_close_matches(key, [value.name for value in program.values], n=3, cutoff=0.5)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise InputError(f"the program has no value {key!r}{hint}")
        return named[0]
    return key


def _parsed(sharding: TensorSharding | str) -> TensorSharding:
    return TensorSharding.from_text(sharding) if isinstance(sharding, str) else sharding


def _check_value(program: Program, value: int) -> None:
    if not 0 <= value < len(program.values):
        raise InputError(f"there is no value {value}; the program has values 0..{len(program.values) - 1}")


def _checked(program: Program, mesh: Mesh, value: int, sharding: TensorSharding) -> Spec:
    _check_value(program, value)
    tensor = program.values[value]
    if tensor.origin is Origin.LITERAL:
        raise ShardingError(f"value {value} ({tensor.name}) is a literal and cannot be sharded")
    sharding = sharding.canonical(mesh)
    sharding.validate(mesh, tensor.type.shape, what=f"value {tensor.name}")
    return _without_size_one(to_spec(sharding, mesh, 0))


def _without_size_one(spec: Spec) -> Spec:
    """The spec without axes of size 1: they cut nothing, and would compete with axes that do."""

    def keep(axes: Refs) -> Refs:
        return tuple(a for a in axes if a[2] > a[1])

    dims = tuple(d._replace(axes=keep(d.axes)) for d in spec.dims)
    return Spec(spec.mesh, dims, keep(spec.replicated), keep(spec.unreduced))


def _check_groups(program: Program, groups: Sequence[Sequence[int]]) -> None:
    for members in groups:
        for v in members:
            _check_value(program, v)
        shapes = {program.type_of(v).shape for v in members}
        if len(shapes) > 1:
            names = ", ".join(f"{program.values[v].name} {list(program.type_of(v).shape)}" for v in members)
            raise ShardingError(f"the members of a sharding group must have equal shapes, found {names}")


def _check_group_conflicts(program: Program, mesh: Mesh, built: ProgramGraph, groups: Sequence[Sequence[int]]) -> None:
    """`ShardingError` where two members of a group have different closed shardings (S4.12)."""
    for members in groups:
        closed: dict[int, Spec] = {}
        for value in members:
            spec = built.graph.spec(built.holder_of.get(value, NO_HOLDER))
            if spec is not None and not any(d.is_open for d in spec.dims):
                closed[value] = spec
        for value, spec in closed.items():
            first, reference = next(iter(closed.items()))
            if spec.dims != reference.dims:
                a, b = program.values[first].name, program.values[value].name
                raise ShardingError(
                    f"{a} and {b} are in one sharding group but have different closed shardings: "
                    f"{from_spec(reference, mesh, None)} and {from_spec(spec, mesh, None)}; open or drop one of them"
                )


def _op_factors(built: ProgramGraph, mesh: Mesh) -> dict[int, tuple[tuple[AxisRef, ...], ...]]:
    graph = built.graph
    memo: dict[tuple, tuple[tuple[AxisRef, ...], ...]] = {}
    out: dict[int, tuple[tuple[AxisRef, ...], ...]] = {}
    for op_id, op in sorted(built.program.ops.items()):
        if op.rule is None:
            continue
        nodes = built.nodes_of.get(op_id)
        if nodes:
            holders = graph.nodes[nodes[0]].tensors
        else:  # an op that does nothing but make a sharding group, or a dead or local one
            holders = [built.holder_of.get(v, NO_HOLDER) for v in (*op.operands, *op.results)]
        numbers = tuple(graph.holders[h] if h >= 0 else -1 for h in holders)
        # a scalar literal has no sharding and no factor: it restricts nothing
        key = (op.rule, numbers)
        if key not in memo:
            specs = [graph.steps.spec(n) for n in numbers]
            memo[key] = tuple(tuple(axis_ref(r, mesh) for r in f) for f in common_factor_axes(op.rule, specs))
        out[op_id] = memo[key]
    return out


def common_factor_axes(rule, specs: Sequence[Spec | None]) -> list[Refs]:
    """For each factor the axes that all its tensors share as a prefix; no axis on two factors."""
    sizes = rule.factor_sizes
    prefixes: list[Refs | None] = [None] * len(sizes)
    for mapping, spec in zip((*rule.operands, *rule.results), specs, strict=True):
        for factor, sharding in project(mapping, spec, sizes).factors.items():
            old = prefixes[factor]
            prefixes[factor] = sharding.axes if old is None else _common_prefix(old, sharding.axes)
    used: list[Ref] = []
    out: list[Refs] = []
    for factor, axes in enumerate(prefixes):
        kept: list[Ref] = []
        if factor in rule.shardable:
            for ref in axes or ():
                if any(overlaps(ref, u) for u in used):
                    break
                kept.append(ref)
        used += kept
        out.append(tuple(kept))
    return out


def _common_prefix(a: Refs, b: Refs) -> Refs:
    out: list[Ref] = []
    for x, y in zip(a, b, strict=False):
        if x == y:
            out.append(x)
            continue
        if is_prefix(x, y):
            out.append(x)
        elif is_prefix(y, x):
            out.append(y)
        break
    return tuple(out)
