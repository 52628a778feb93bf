"""The check, before any search, that a region can be local over its manual axes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from autoshard.constraints.manual.borders import Stated
from autoshard.constraints.manual.region import Region
from autoshard.errors import ShardingError
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.program.rule import ShardingRule
from autoshard.sharding.tensor_sharding import TensorSharding

Held = tuple[tuple[tuple[str, ...], ...], frozenset[str]]
"""Manual axes on each dimension, and those that the value is a partial sum over."""


def check_local(
    what: str, program: Program, region: Region, axes: Sequence[str], entering: Stated, leaving: Stated
) -> None:
    """Raise `ShardingError` where blocks with these shardings cannot be computed with, or leave, without a collective.

    Follows the manual axes from the entering values through the ops with rules. Where an op makes a dimension without
    operands (broadcast, iota), its manual axes are open, and the solver decides what depends on it.
    """
    held: dict[int, Held] = {v: _manual_part(s, axes) for v, s in entering}
    ends = {v: _manual_part(s, axes) for v, s in leaving}
    for op in _own_ops(program.body, region):
        if op.rule is None:
            continue
        held_results = _through(what, op, held, program)
        for k, v in enumerate(op.results):
            if held_results is None or held_results[k] is None:
                continue
            now = held_results[k]
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
    on, partial, certain = _met(at, op, rule, held, program)
    for f, names in on.items():
        if names and (f not in rule.placeable or any(f in (c.taken, c.made) for c in rule.cutouts)):
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


def _met(
    at: str, op: Op, rule: ShardingRule, held: Mapping[int, Held], program: Program
) -> tuple[dict[int, tuple[str, ...]], frozenset[str], bool]:
    """Manual axes by factor as the operands bring them, axes of partial sums, and whether nothing is open."""
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
                certain = False  # the sizes of the factors decide which of them are cut
                continue
            for f in factors:
                if f in on and on[f] != names:
                    raise ShardingError(
                        f"{at} needs {name} cut by {_axes_text(on[f])} where it is cut by {_axes_text(names)}, as its "
                        "operands share that dimension: blocks that differ meet only by a collective"
                    )
                on[f] = names
    return on, partial, certain


def _words(held: Held) -> str:
    dims, sums = held
    text = "[" + ", ".join(_axes_text(d) for d in dims) + "]"
    return text + (f" unreduced={_axes_text(sorted(sums))}" if sums else "")


def _axes_text(names: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{n}"' for n in names) + "}"
