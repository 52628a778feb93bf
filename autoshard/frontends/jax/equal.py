"""Ops that compute what another op of their block has computed: they are left out, as XLA leaves them out.

Planned twice, such an op could be given a second collective that no compiled program has.
"""

from collections.abc import Hashable
from typing import Any

from autoshard.frontends.draft import DraftBlock, DraftOp, DraftValue
from autoshard.frontends.jax.facts import key_of
from autoshard.frontends.jax.placement import KIND as CONSTRAINT

_OWN = frozenset({CONSTRAINT, "optimization_barrier", "rng_uniform"})
"""Kinds whose results count as different: statements, what keeps recomputed values apart, what is random by itself."""


def merge_equal(block: DraftBlock) -> bool:
    """Read results of an op from the first op that computes the same, in regions too; says whether anything changed.

    The later op is to be pruned. It stays where its results are results of the block or have other tags than the first
    op's, since each of these can be stated apart; where it only spreads a value (`broadcast_in_dim`); and where no
    argument of the block goes into it: such values are made on any device in any layout without communication, so each
    use keeps its own. What a `shard_map` holds is not planned, and stays. ``attrs["also"]`` of the first op has the
    source lines of the others.
    """
    first: dict[Hashable, DraftOp] = {}
    equal: dict[DraftValue, DraftValue] = {}  # the first value with the same numbers
    instead: dict[DraftValue, DraftValue] = {}
    given, kept = set(block.args), set(block.results)
    changed = False
    for op in block.ops:
        op.operands = [instead.get(v, v) for v in op.operands]
        for region in op.regions if op.kind != "shard_map" else ():
            changed |= merge_equal(region)
        from_given = any(v in given for v in op.operands)
        if from_given:
            given.update(op.results)
        key = _key(op, equal)
        if key is None:
            continue
        before = first.setdefault(key, op)
        if before is op:
            continue
        pairs = list(zip(op.results, before.results, strict=True))
        equal.update(pairs)
        if from_given and op.kind != "broadcast_in_dim" and all(v not in kept and v.tags == w.tags for v, w in pairs):
            instead.update(pairs)
            changed = True
            if op.source not in (before.source, *before.attrs.get("also", ())):
                before.attrs = {**before.attrs, "also": [*before.attrs.get("also", ()), op.source]}
    return changed


def _key(op: DraftOp, equal: dict[DraftValue, DraftValue]) -> Hashable | None:
    """What is the same for ops that compute the same; None for an op that is like no other."""
    if op.regions or op.kind in _OWN or "kernel" in op.attrs:
        return None
    attrs = {name: value for name, value in op.attrs.items() if name != "also"}
    operands, results = tuple(equal.get(v, v) for v in op.operands), tuple(v.type for v in op.results)
    key = (op.kind, operands, results, key_of(op.origin.params), key_of(attrs), _context(op.origin.ctx))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _context(ctx: Any) -> Hashable:
    """What of the context of an equation changes its numbers, or where it runs."""
    return ctx.compute_type, ctx.threefry_partitionable, str(ctx.xla_metadata)
