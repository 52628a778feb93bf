"""Named strategies as statements: which logical axis of which input lies on which mesh axes.

As in MaxText's guide there are three layers (S3.9): mesh axes, logical axes (batch, seq, embed, mlp, heads, vocab,
...) that rules map to mesh axes, and arrays whose dimensions have logical names. A strategy makes its statements in
rounds (S2.5): first those that cut the batch, then those that cut matmuls (Megatron, experts), then those that only cut
storage (FSDP); the last do not move the matmuls that earlier rounds have placed. Some strategies change the layout on
purpose in the middle of a layer; tags of the program (`checkpoint_name`) mark these *switches*:

| part | batch | matmuls | storage | switches |
| --- | --- | --- | --- | --- |
| data | rows | | | |
| zero1 | rows | | optimizer state | |
| fsdp, fsdp_transpose | rows | | parameters, on embed or on mlp and heads | |
| tensor | | mlp, heads, vocab | | |
| context | sequence | | | keys and values whole, queries stay cut (S3.18) |
| sequence | sequence | | | attention on heads instead, and back (S3.21) |
| expert | rows | experts | | rows for experts and back |
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import prod

from autoshard.errors import InputError, listing
from autoshard.program.program import Program
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.strategies.names import assign_axes, fitting

Roles = Mapping[str, Sequence[str | None]]
"""Path pattern of inputs (or ``@tag``) -> the logical name of each of their dimensions."""

Rules = Mapping[str, Sequence[str]]
"""Logical name -> mesh axes."""

BATCH = "batch"
SEQ = "seq"
EXPERTS = "experts"
TENSOR = ("mlp", "heads", "kv_heads", "vocab", "conv_out")
"""Logical axes that Megatron cuts: columns of the first matrix of a pair, rows of the second (S3.5)."""
FSDP = ("embed",)
"""Logical axes that FSDP cuts first; where none of them divides, it cuts the largest dimension that does."""
NEVER = ("layers", BATCH, SEQ, "kernel_height", "kernel_width")
MOMENTS = ("mu", "nu", "trace", "opt", "opt_state")
"""Steps of a path that belong to the optimizer's state."""

TAGS: Roles = {
    "@query": (BATCH, SEQ, "heads", "head_dim"),
    "@key": (BATCH, SEQ, "kv_heads", "head_dim"),
    "@value": (BATCH, SEQ, "kv_heads", "head_dim"),
    "@attn_context": (BATCH, SEQ, "heads", "head_dim"),
    "@expert_in": (EXPERTS, BATCH, "capacity", "embed"),
    "@expert_out": (EXPERTS, BATCH, "capacity", "embed"),
}
"""Tags at which strategies may switch, as models of the library set them; your own programs can set the same."""


INSIDE, ROWS, WORK, STORAGE = 0, 1, 2, 3
"""Rounds of propagation: layouts inside of switches first, so that they reach the backward pass within."""


@dataclass(frozen=True)
class Switch:
    """The sharding behind a tagged value (logical name -> mesh axes), and the round in which it is stated."""

    rules: Rules
    round: int = INSIDE


@dataclass(frozen=True)
class NamedStrategy:
    """The mesh axes that a strategy uses, and for what.

    rules: logical name -> mesh axes, for axes that cut work. storage: (mesh axes, logical names they go to first) for
    parameters. moments: mesh axes for the optimizer's state alone. switches: by tag. switching: mesh axes that switch.
    cuts_heads: mesh axes that must divide the key/value heads together (S3.22).
    """

    name: str
    rules: Rules
    storage: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    moments: tuple[str, ...] = ()
    switches: Mapping[str, Switch] = field(default_factory=dict)
    switching: tuple[str, ...] = ()
    cuts_heads: tuple[str, ...] = ()

    @property
    def carries_rows(self) -> frozenset[str]:
        """Mesh axes that cut batch or sequence; on a parameter they only cut storage."""
        return frozenset((*self.rules.get(BATCH, ()), *self.rules.get(SEQ, ())))


def named_strategy(name: str, mesh: Mesh, slow: Collection[str] = ()) -> NamedStrategy:
    """The strategy of that name on a mesh (see `names`); `slow`: axes between slices."""
    axes, across = assign_axes(name, mesh, slow)

    def of(*parts: str) -> tuple[str, ...]:
        named = {axis for part in parts for axis in axes.get(part, ())}
        return tuple(a for a in mesh.axis_names if a in named)

    every = of("data", "zero1", "fsdp", "fsdp_transpose", "expert")
    batch = tuple(a for a in mesh.axis_names if a in (*across, *every))
    seq, tensor, experts = of("context", "sequence"), of("tensor"), of("expert")
    rules: dict[str, tuple[str, ...]] = {BATCH: batch, SEQ: seq}
    rules |= dict.fromkeys(TENSOR, tensor)
    rules[EXPERTS] = experts
    storage = []
    for part, first in (("fsdp", FSDP), ("fsdp_transpose", TENSOR)):
        if axes.get(part):
            storage.append((axes[part], first))
    switches: dict[str, Switch] = {}
    if of("context"):
        around = {BATCH: batch, SEQ: of("sequence"), "heads": tensor, "kv_heads": tensor}
        switches |= {"@key": Switch(around), "@value": Switch(around)}
    if of("sequence"):
        # within attention, axes of `sequence` cut heads; axes of `context` still cut the sequence, of queries only
        inside = {BATCH: batch, "heads": (*tensor, *of("sequence")), "kv_heads": (*tensor, *of("sequence"))}
        switches |= {"@query": Switch({**inside, SEQ: of("context")}), "@key": Switch(inside), "@value": Switch(inside)}
        switches["@attn_context"] = Switch({BATCH: batch, SEQ: seq, "heads": tensor}, ROWS)
    if experts:
        rows = tuple(a for a in batch if a not in experts)
        switches |= {"@expert_in": Switch({BATCH: rows, EXPERTS: experts}), "@expert_out": Switch({BATCH: batch}, ROWS)}
    return NamedStrategy(
        name, {k: v for k, v in rules.items() if v}, tuple(storage), of("zero1"), switches,
        of("context", "sequence", "expert"), (*tensor, *of("sequence")) if of("sequence") else (),
    )  # fmt: skip


def strategy_from_rules(name: str, rules: Mapping[str, str | Sequence[str]], mesh: Mesh) -> NamedStrategy:
    """A strategy of the user: MaxText's ``logical_axis_rules``, logical name -> mesh axis or axes, earlier rules first.

    ``activation_batch`` is about arrays that have a batch dimension, ``batch`` about all arrays.
    """
    mesh_axes: dict[str, tuple[str, ...]] = {}
    for logical, axes in rules.items():
        listed = (axes,) if isinstance(axes, str) else tuple(axes)
        for axis in listed:
            if axis not in mesh.axis_names:
                raise InputError(f"rule {logical!r} names mesh axis {axis!r}; the mesh is {mesh}")
        if len(set(listed)) < len(listed):
            raise InputError(f"rule {logical!r} names a mesh axis twice: {', '.join(listed)}")
        if listed:
            mesh_axes[logical] = listed
    if f"activation_{BATCH}" in mesh_axes:
        mesh_axes.setdefault(BATCH, mesh_axes[f"activation_{BATCH}"])
    if not mesh_axes:
        raise InputError(f"strategy {name!r} has no rules; write them like {{batch: [data, fsdp], mlp: tensor}}")
    return NamedStrategy(name, mesh_axes)


def check_rules(strategy: NamedStrategy, roles: Roles) -> None:
    """Raise `InputError` where a rule is about a logical axis that no input has."""
    known = {name for axes in roles.values() for name in axes if name}
    for logical in strategy.rules:
        if logical.removeprefix("activation_") not in known:
            raise InputError(
                f"strategy {strategy.name!r}: no input has the logical axis {logical!r}; "
                f"known are {', '.join(sorted(known))}"
            )


# -- the statements of a strategy about a program ------------------------------------------------------


@dataclass(frozen=True)
class Statements:
    """The shardings that a strategy states for a program.

    spread: value -> sharding with priorities, for propagation. pins: input -> sharding in which it must be stored.
    switches: value -> sharding for the uses of the value; its definition may have another one.
    """

    spread: Mapping[int, TensorSharding]
    pins: Mapping[int, TensorSharding]
    switches: Mapping[int, TensorSharding]


def roles_of(program: Program, roles: Roles) -> dict[int, tuple[str | None, ...]]:
    """Input value -> logical names; `InputError` where a pattern's names do not fit the rank."""
    out: dict[int, tuple[str | None, ...]] = {}
    patterns = {p: tuple(axes) for p, axes in roles.items() if not p.startswith("@")}
    for name, value in zip(program.input_names, program.body.args, strict=False):
        for pattern, axes in patterns.items():
            if fnmatchcase(name, pattern):
                rank = program.type_of(value).rank
                if len(axes) != rank:
                    raise InputError(f"logical axes {axes} of {pattern!r} do not fit {name} of rank {rank}")
                out[value] = axes
                break
    return out


def role_notes(program: Program, roles: Roles) -> list[str]:
    """What is to be told of logical axes: patterns that address no input."""
    return [
        f"logical axes of {pattern!r} are of no input; {listing(pattern, program.input_names)}"
        for pattern in roles
        if not pattern.startswith("@") and not any(fnmatchcase(name, pattern) for name in program.input_names)
    ]


def statements(strategy: NamedStrategy, program: Program, mesh: Mesh, roles: Roles) -> Statements:
    """The shardings that `strategy` states for a program. Axes that do not divide a dimension are left off it.

    Raises `InputError` where the strategy switches at tags that the program does not have, or cuts more heads than
    there are.
    """
    named = [v for v in strategy.rules if v.startswith("activation_")]
    spread: dict[int, TensorSharding] = {}
    pins: dict[int, TensorSharding] = {}
    names_of = dict(zip(program.body.args, program.input_names, strict=False))
    for value, names in roles_of(program, roles).items():
        shape = program.type_of(value).shape
        is_data = BATCH in names
        rules = dict(strategy.rules)
        for rule in named:
            rules.pop(rule)
            if is_data:
                rules[rule.removeprefix("activation_")] = strategy.rules[rule]
        dims = _by_rules(rules, names, shape, mesh, () if is_data else strategy.carries_rows)
        if not is_data:
            for axes, first in strategy.storage:
                _store(dims, axes, first, names, shape, mesh)
            if strategy.moments and set(names_of[value].split("/")) & set(MOMENTS):
                _store(dims, strategy.moments, FSDP, names, shape, mesh)
        spread[value] = _sharding(dims)
        pins[value] = TensorSharding(None, tuple(DimensionSharding(_refs(a), False, None) for a, _ in dims))
    return Statements(spread, pins, _switched(strategy, program, mesh, roles))


_Dims = list[tuple[tuple[str, ...], int | None]]


def _by_rules(
    rules: Rules, names: Sequence[str | None], shape: Sequence[int], mesh: Mesh, storage: Collection[str]
) -> _Dims:
    """Axes and round of each dimension; an axis goes to the first dimension whose rule names it."""
    dims: _Dims = [((), None)] * len(shape)
    taken: set[str] = set()
    for logical, axes in rules.items():
        for d, (name, size) in enumerate(zip(names, shape, strict=True)):
            if name != logical or dims[d][0]:
                continue
            fit = fitting([a for a in axes if a not in taken and mesh.axis_size(a) > 1], size, mesh)
            if fit:
                dims[d] = (fit, _round(logical, fit, storage))
                taken |= set(fit)
    return dims


def _round(logical: str, axes: Sequence[str], storage: Collection[str]) -> int:
    if logical in (BATCH, SEQ):
        return ROWS
    if set(axes) <= set(storage):
        return STORAGE
    return INSIDE if logical == EXPERTS else WORK


def _store(
    dims: _Dims,
    axes: tuple[str, ...],
    first: Sequence[str],
    names: Sequence[str | None],
    shape: Sequence[int],
    mesh: Mesh,
) -> None:
    """Put storage axes on one dimension: a preferred one that they divide, else the largest that they divide, else
    none.
    """
    used = {a for listed, _ in dims for a in listed}
    axes = tuple(a for a in axes if a not in used)
    parts = prod(map(mesh.axis_size, axes))
    if parts == 1:
        return
    free = [d for d, n in enumerate(shape) if n > 1 and not dims[d][0] and names[d] not in NEVER]
    fits = [d for d in free if shape[d] % parts == 0]
    preferred = [d for d in fits if names[d] in first]
    if fits:
        place = preferred[0] if preferred else max(fits, key=lambda d: (shape[d], -d))
        dims[place] = (axes, STORAGE)


def _switched(strategy: NamedStrategy, program: Program, mesh: Mesh, roles: Roles) -> dict[int, TensorSharding]:
    if not strategy.switches:
        return {}
    by_tag: dict[str, list[int]] = {}
    for value in program.values:
        for tag in value.tags:
            by_tag.setdefault(f"@{tag}", []).append(value.id)
    shardings: dict[int, TensorSharding] = {}
    parts = prod(map(mesh.axis_size, strategy.cuts_heads))
    for tag, switch in strategy.switches.items():
        names = tuple(roles.get(tag, TAGS[tag]))
        values = [v for v in by_tag.get(tag, ()) if program.type_of(v).rank == len(names)]
        if not values:
            raise InputError(
                f"strategy {strategy.name!r} changes layouts at values tagged {tag[1:]!r} with dimensions "
                f"{', '.join(map(str, names))}, and the program has none; tag them with "
                "`checkpoint_name` (from jax.ad_checkpoint import checkpoint_name)"
            )
        for value in values:
            shape = program.type_of(value).shape
            heads = next((n for n, name in zip(shape, names, strict=True) if name == "kv_heads"), None)
            if heads is not None and parts > 1 and heads % parts:
                raise InputError(
                    f"strategy {strategy.name!r} cuts the {heads} key/value heads in {parts}: "
                    f"{' x '.join(strategy.cuts_heads)} must divide them"
                )
            shardings[value] = _sharding(_by_rules(switch.rules, names, shape, mesh, ()), switch.round)
    return shardings


def _sharding(dims: _Dims, priority: int | None = None) -> TensorSharding:
    return TensorSharding(
        None,
        tuple(
            DimensionSharding(_refs(a), False, (p if priority is None else priority) if a else None) for a, p in dims
        ),
    )


def _refs(axes: Sequence[str]) -> tuple[AxisRef, ...]:
    return tuple(AxisRef(a) for a in axes)


def batch_size(program: Program, roles: Roles) -> float | None:
    """Tokens of a step (rows, where there is no sequence), from the largest input with a batch dimension; None
    without one.
    """
    sizes = [
        float(prod(n for n, name in zip(program.type_of(value).shape, names, strict=True) if name in (BATCH, SEQ)))
        for value, names in roles_of(program, roles).items()
        if BATCH in names
    ]
    return max(sizes, default=None)
