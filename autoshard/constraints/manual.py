"""Manual computations as statements: a region of the program that is local over some mesh axes (S4.14 to S4.24).

What a `shard_map` says in code, said of a program without one. The region is a set of ops. What comes into it and what
leaves it lies on the manual axes exactly as stated; inside nothing moves over them: no collective, no slice. The other
axes are the planner's, as far as the shardings leave them open.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoshard.constraints.patterns import Addresses
from autoshard.constraints.place import written_at
from autoshard.errors import InputError, ShardingError
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.dimension_sharding import DimensionSharding
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.tensor_sharding import TensorSharding

REPLICATED = "replicated"
"""Stands for a sharding of any rank that the manual axes do not cut and the others may."""
MOST_NAMED = 8
"""How many values of a border a message names."""

Sharding = TensorSharding | str
Border = Sequence[Sharding] | Mapping[str, Sharding]
Stated = tuple[tuple[int, TensorSharding], ...]
"""Values of a border of the region and their shardings."""


@dataclass(frozen=True, slots=True)
class ManualComputation:
    """The ops that `region` addresses compute on blocks that are local over `axes`.

    region: patterns of ops: ``scope:attn`` (a `jax.named_scope` or jitted function), ``model.py:120-140``, a primitive.
    in_shardings, out_shardings: of the values that come in and that leave: a list in the order of first use (of
    definition) in the region, or a mapping from patterns or names to shardings, earlier entries first. A sharding is as
    of a `Pin`, or ``replicated``. Manual axes that it leaves out do not cut the value.

    >>> str(ManualComputation("scope:attn", ["y"], {"x": '[{"y"}, {?}]'}, ['[{"y"}, {?}]']))
    'manual computation over y at scope:attn'
    """

    region: str | Sequence[str]
    axes: str | Sequence[str]
    in_shardings: Border
    out_shardings: Border
    source: str = ""
    written: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        written_at(self)
        regions = (self.region,) if isinstance(self.region, str) else self.region
        if not _texts(regions):
            raise InputError(
                f"a manual computation needs the ops of its region, such as scope:attn or model.py:12-20, found "
                f"{self.region!r}"
            )
        object.__setattr__(self, "region", tuple(regions))
        axes = (self.axes,) if isinstance(self.axes, str) else self.axes
        if not _texts(axes):
            raise InputError(f"{self}: its manual axes are a list of mesh axes such as ['model'], found {self.axes!r}")
        object.__setattr__(self, "axes", tuple(dict.fromkeys(axes)))
        for key in ("in_shardings", "out_shardings"):
            object.__setattr__(self, key, self._read(key, getattr(self, key)))

    def _read(self, key: str, given: Any) -> tuple[tuple[str | None, Sharding], ...]:
        """(pattern, or None in a list; sharding) in the order written."""
        if isinstance(given, Mapping):
            pairs = [(pattern, sharding) for pattern, sharding in given.items()]
        elif isinstance(given, Sequence) and not isinstance(given, str):
            pairs = [item if _is_pair(item) else (None, item) for item in given]
        else:
            raise InputError(
                f"{self}: {key} is a list of shardings, or a mapping from patterns to them, found {given!r}"
            )
        out: list[tuple[str | None, Sharding]] = []
        for pattern, sharding in pairs:
            if pattern is not None and not _texts([pattern]):
                raise InputError(f"{self}: {key} names values by patterns such as params/w, found {pattern!r}")
            if isinstance(sharding, str) and sharding.strip() != REPLICATED:
                try:
                    sharding = TensorSharding.from_text(sharding)
                except ShardingError as error:
                    raise ShardingError(f"{self}: {key}: {error}") from None
            elif isinstance(sharding, str):
                sharding = REPLICATED
            elif not isinstance(sharding, TensorSharding):
                raise InputError(
                    f"{self}: {key}: a sharding is text such as '[{{\"data\"}}, {{?}}]', or {REPLICATED!r}, "
                    f"found {sharding!r}"
                )
            out.append((pattern, sharding))
        return tuple(out)

    def __str__(self) -> str:
        axes = self.axes if isinstance(self.axes, str) else ", ".join(map(str, self.axes))
        region = self.region if isinstance(self.region, str) else ", ".join(map(str, self.region))
        return f"manual computation over {axes} at {region}"


def _texts(given: Any) -> bool:
    return (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and bool(given)
        and all(isinstance(item, str) and item.strip() for item in given)
    )


def _is_pair(item: Any) -> bool:
    """As it stands in a statement that is made again from one that has been read (`dataclasses.replace`)."""
    return isinstance(item, tuple) and len(item) == 2 and (item[0] is None or isinstance(item[0], str))


@dataclass(frozen=True, slots=True)
class Region:
    """A set of ops with all that is inside of them, and the values at its borders.

    inside: values that ops of the region define, arguments of their bodies included. entering: others that they use,
    in the order of first use. leaving: those of `inside` that something else uses, in the order of definition.
    """

    ops: frozenset[int]
    inside: frozenset[int]
    entering: tuple[int, ...]
    leaving: tuple[int, ...]


def region_of(program: Program, ops: Iterable[int]) -> Region:
    """The borders of a set of ops, which holds the inner ops of its members."""
    chosen = frozenset(ops)
    inside: dict[int, None] = {}
    entering: dict[int, None] = {}
    leaving: dict[int, None] = {}
    used_outside = set(program.body.results)
    for op, _ in program.walk():
        handed = [v for region in op.regions for v in region.results]
        if op.id in chosen:
            inside.update(dict.fromkeys(v for region in op.regions for v in region.args))
        else:
            used_outside.update((*op.operands, *handed))
    for op, _ in program.walk():
        if op.id in chosen:
            inside.update(dict.fromkeys(op.results))
    for op, _ in program.walk():
        if op.id in chosen:
            handed = [v for region in op.regions for v in region.results]
            for v in (*op.operands, *handed):
                if v not in inside and program.values[v].origin is not Origin.LITERAL:
                    entering[v] = None
            leaving.update(dict.fromkeys(v for v in op.results if v in used_outside))
    return Region(chosen, frozenset(inside), tuple(entering), tuple(leaving))


def match_manual(
    statement: ManualComputation, ops: Iterable[int], addresses: Addresses, mesh: Mesh
) -> tuple[Region, Stated, Stated]:
    """The region of a statement and the shardings at its borders, on the manual axes complete.

    Raises `InputError` where the shardings do not go with the borders, `ShardingError` where one of them does not fit
    its value, and where what the region computes cannot be local.
    """
    program = addresses.program
    what = f"{statement.source}: {statement}" if statement.source else str(statement)
    axes = in_order(statement.axes, mesh)
    region = region_of(program, ops)
    for op, outer in program.walk():
        around = next((o for o in outer if o.kind == "shard_map" and o.id not in region.ops), None)
        if op.id in region.ops and around is not None:
            raise InputError(
                f"{what}: {op.kind} at {op.source} lies inside of the shard_map at {around.source}, which is a manual "
                "computation already; state the sharding of what comes into it or leaves it"
            )
        shared = op.kind == "shard_map" and set(axes) & {
            a if isinstance(a, str) else a[0] for a in op.attrs.get("mesh_axes", ())
        }
        if op.id in region.ops and shared:
            raise ShardingError(
                f"{what}: axis {sorted(shared)[0]!r} is manual in the shard_map at {op.source} inside of it already; "
                "nested manual computations have axes of their own"
            )
    parts = _parts(program, region)
    entering = _assigned(what, "in_shardings", statement.in_shardings, region.entering, parts, addresses)
    leaving = _assigned(what, "out_shardings", statement.out_shardings, region.leaving, parts, addresses)
    stated_in = tuple((v, _complete(what, v, s, axes, program, mesh)) for v, s in entering)
    stated_out = tuple((v, _complete(what, v, s, axes, program, mesh)) for v, s in leaving)
    return region, stated_in, stated_out


def in_order(axes: Sequence[str], mesh: Mesh) -> tuple[str, ...]:
    """In the order of the mesh (S4.16); those that it lacks, which others refuse, behind."""
    return (*(a for a in mesh.axis_names if a in axes), *(a for a in axes if a not in mesh.axis_names))


def _parts(program: Program, region: Region) -> list[Region]:
    """The pieces of a region that no value inside of it connects: one for each call of the same function."""
    part_of: dict[int, int] = {}
    owner: dict[int, int] = {}

    def root(op: int) -> int:
        while part_of[op] != op:
            op = part_of[op]
        return op

    def join(op: int, value: int) -> None:
        if value in owner:
            a, b = root(op), root(owner[value])
            part_of[max(a, b)] = min(a, b)
        elif value in region.inside:
            owner[value] = op

    outermost: dict[int, int] = {}
    for op, outer in program.walk():
        if op.id in region.ops:
            top = next((o.id for o in outer if o.id in region.ops), op.id)
            outermost[op.id] = top
            part_of.setdefault(top, top)
            for v in (*op.results, *(v for r in op.regions for v in r.args), *op.operands):
                join(top, v)
    members: dict[int, list[int]] = {}
    for op, top in outermost.items():
        members.setdefault(root(top), []).append(op)
    return [region_of(program, ops) for _, ops in sorted(members.items())]


def _assigned(
    what: str, key: str, given: Any, border: Sequence[int], parts: Sequence[Region], addresses: Addresses
) -> list[tuple[int, Sharding]]:
    """Each value of a border with its sharding."""
    program = addresses.program
    side = "come in" if key == "in_shardings" else "leave"
    named = [f"{program.values[v].name} {program.type_of(v)}" for v in border]
    told = f"{len(border)} values {side}: {_some(named)}"
    if all(pattern is None for pattern, _ in given):
        if len(given) == len(border):
            return [(v, sharding) for v, (_, sharding) in zip(border, given, strict=True)]
        sides = [part.entering if key == "in_shardings" else part.leaving for part in parts]
        if len(parts) > 1 and all(len(values) == len(given) for values in sides):
            out: dict[int, Sharding] = {}
            for values in sides:
                for v, (_, sharding) in zip(values, given, strict=True):
                    if out.setdefault(v, sharding) != sharding:
                        name = program.values[v].name
                        raise InputError(f"{what}: {key} gives {name} two shardings, as several calls use it: name it")
            return list(out.items())
        raise InputError(f"{what}: {key} has {len(given)} entries, but {told} (S4.14: one for each)")
    if any(pattern is None for pattern, _ in given):
        raise InputError(f"{what}: {key} is either a list or a mapping")
    found: dict[int, Sharding] = {}
    for pattern, sharding in given:
        match = set(border) if pattern == "**" else _addressed(pattern, addresses) & set(border)
        if not match and pattern != "**":
            raise InputError(f"{what}: {key}: {pattern!r} is none of the values there; {told}")
        for v in border:
            if v in match:
                found.setdefault(v, sharding)
    missing = [f"{program.values[v].name} {program.type_of(v)}" for v in border if v not in found]
    if missing:
        raise InputError(
            f'{what}: {key} says nothing of {_some(missing)}; add them, or "**": {REPLICATED} for the rest'
        )
    return [(v, found[v]) for v in border]


def _addressed(pattern: str, addresses: Addresses) -> set[int]:
    program = addresses.program
    exact = {v.id for v in program.values if v.name == pattern}
    if exact:
        return exact
    match = addresses.find(pattern)
    return {*match.values, *(program.body.results[slot] for slot in match.outputs)}


def _complete(
    what: str, value: int, given: Sharding, axes: Sequence[str], program: Program, mesh: Mesh
) -> TensorSharding:
    """A sharding with every manual axis in it: those that cut no dimension are replicated (S4.17)."""
    type_, name = program.type_of(value), program.values[value].name
    if isinstance(given, str):
        given = TensorSharding(None, (DimensionSharding(is_open=True),) * type_.rank)
    told = f"{what}: {name} {type_}: {given}"
    if given.rank != type_.rank:
        raise ShardingError(f"{told} has {given.rank} dimensions")
    if any(d.priority is not None for d in given.dims):
        raise InputError(f"{told}: borders of manual computations have no priorities")
    listed = {ref.name for d in given.dims for ref in d.axes} | {ref.name for ref in given.unreduced}
    rest = [a for a in axes if a not in listed and all(a != ref.name for ref in given.replicated)]
    try:
        full = TensorSharding(
            given.mesh_name, given.dims, (*given.replicated, *(AxisRef(a) for a in rest)), given.unreduced
        ).canonical(mesh)
    except ShardingError as error:
        raise ShardingError(f"{told}: {error}") from None
    faults = full.violations(mesh, type_.shape, what=f"{name} {type_}")
    if faults:
        raise ShardingError(f"{what}: " + "; ".join(faults))
    for d, dim in enumerate(full.dims):
        manual = [ref for ref in dim.axes if ref.name in axes]
        if any(ref.is_sub_axis for ref in manual):
            raise ShardingError(f"{told}: manual axes are used whole, not by their sub-axes")
        if list(dim.axes[: len(manual)]) != manual:
            raise ShardingError(f"{told}: dimension {d} has a free axis before a manual one; write manual axes first")
        size = 1
        for ref in manual:
            size *= mesh.axis_size(ref.name)
        if type_.shape[d] % size:
            raise ShardingError(
                f"{told}: {size} blocks do not divide dimension {d} of size {type_.shape[d]}; manual axes do not pad"
            )
    return full


def check_nesting(statements: Sequence[tuple[str, Sequence[str], frozenset[int]]], program: Program) -> None:
    """Raise `ShardingError` where two regions share ops and an axis (S4.24); (text, axes, ops) of each."""
    for index, (text, axes, ops) in enumerate(statements):
        for other, more, others in statements[:index]:
            both = [a for a in axes if a in more]
            common = sorted(ops & others)
            if both and common:
                op = program.ops[common[0]]
                raise ShardingError(
                    f"{text}: axis {both[0]!r} is manual in {other} already, which has {op.kind}:{op.id} at "
                    f"{op.source} too; nested manual computations have axes of their own"
                )


# -- what cannot be local, found before any search -----------------------------------------------------------------

Held = tuple[tuple[tuple[str, ...], ...], frozenset[str]]
"""Manual axes on each dimension, and those that the value is a partial sum over."""


def check_local(
    what: str, program: Program, region: Region, axes: Sequence[str], entering: Stated, leaving: Stated
) -> None:
    """Raise `ShardingError` where blocks as stated cannot be computed with, or leave, without a collective.

    Follows the manual axes from what comes in through the ops with rules. Where an op makes a dimension out of nothing
    (broadcast, iota) its manual axes are open, and what depends on it is left to the solver.
    """
    held: dict[int, Held] = {v: _manual_part(s, axes) for v, s in entering}
    ends = {v: _manual_part(s, axes) for v, s in leaving}
    for op in _own_ops(program.body, region):
        if op.rule is None:
            continue
        found = _through(what, op, held, program)
        for k, v in enumerate(op.results):
            if found is None or found[k] is None:
                continue
            now = found[k]
            assert now is not None
            held[v] = now
            if v in ends and ends[v] != now:
                raise ShardingError(
                    f"{what}: {program.values[v].name} {program.type_of(v)} leaves as {_words(now)}, made by "
                    f"{op.kind}:{op.id} at {op.source}, but its out_sharding says {_words(ends[v])}; "
                    + (
                        "a sum over a manual axis needs a collective: leave with unreduced axes, or write a shard_map"
                        if now[1] - ends[v][1]
                        else "change one of the shardings"
                    )
                )


def _own_ops(block: Block, region: Region) -> Iterator[Op]:
    for op in block.ops:
        if op.id in region.ops:
            yield op
        for inner in op.regions:
            yield from _own_ops(inner, region)


def _manual_part(sharding: TensorSharding, axes: Sequence[str]) -> Held:
    dims = tuple(tuple(ref.name for ref in d.axes if ref.name in axes) for d in sharding.dims)
    return dims, frozenset(ref.name for ref in sharding.unreduced if ref.name in axes)


def _through(what: str, op: Op, held: Mapping[int, Held], program: Program) -> list[Held | None] | None:
    """Manual axes of the results of an op; None where that is open."""
    rule = op.rule
    assert rule is not None
    at = f"{what}: {op.kind}:{op.id} at {op.source}"
    on: dict[int, tuple[str, ...]] = {}
    partial: frozenset[str] = frozenset()
    certain = True
    for k, v in enumerate(op.operands):
        if program.values[v].origin is Origin.LITERAL:
            continue
        if v not in held:
            certain = False
            continue
        dims, sums = held[v]
        name = program.values[v].name
        if sums and not any(k in slots for slots in rule.linear) and k not in rule.accumulators:
            raise ShardingError(f"{at} cannot take {name} as a partial sum over {', '.join(sorted(sums))}")
        partial |= sums
        for factors, names in zip(rule.operands[k], dims, strict=True):
            if names and len(factors) > 1:
                certain = False  # which of the factors are cut depends on their sizes
                continue
            for f in factors:
                if f in on and on[f] != names:
                    raise ShardingError(
                        f"{at} needs {name} cut by {_axes_text(on[f])} where it is cut by {_axes_text(names)}, as its "
                        "operands share that dimension: blocks that differ meet only by a collective"
                    )
                on[f] = names
    for f, names in on.items():
        if names and f not in rule.placeable:
            raise ShardingError(f"{at} needs a dimension whole that is cut by {_axes_text(names)}")
        if names and (any(h.factor == f for h in rule.halos) or (f in rule.reduction and rule.combiner != "add")):
            raise ShardingError(f"{at} cannot be done on blocks over {_axes_text(names)} without a collective")
    used = [a for names in on.values() for a in names]
    twice = sorted({a for a in used if used.count(a) > 1})
    if twice:
        raise ShardingError(f"{at}: axis {twice[0]!r} would cut two of its dimensions")
    if not certain:
        return None
    sums = partial | {a for f, names in on.items() if f in rule.reduction for a in names}
    out: list[Held | None] = []
    for tensor in rule.results:
        known = all(f in on for dim in tensor for f in dim)
        out.append((tuple(tuple(a for f in dim for a in on[f]) for dim in tensor), sums) if known else None)
    return out


def _words(held: Held) -> str:
    dims, sums = held
    text = "[" + ", ".join(_axes_text(d) for d in dims) + "]"
    return text + (f" unreduced={_axes_text(sorted(sums))}" if sums else "")


def _axes_text(names: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{n}"' for n in names) + "}"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
