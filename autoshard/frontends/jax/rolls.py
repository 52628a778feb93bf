"""Rolls in jaxprs: two runs of one array that change places (`jnp.roll`, its gradient, a join of two slices).

JAX has no primitive for them. As slices that are joined, each run would be moved by itself; as one op every element
moves once, to where it is wanted.
"""

from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax.extend import core as jax_core


class _RollPrimitive:
    """Stands where the primitive of an equation stands, and runs as the slices and the join that were there.

    Element r of dimension `dimension` of the result is element ``(r + start) mod n`` of the operand.
    """

    name = "roll"
    multiple_results = False

    def bind(self, x: Any, *, dimension: int, start: int) -> Any:
        return rolled(x, dimension, start)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        return params


ROLL = _RollPrimitive()


def rolled(x: Any, dimension: int, start: int) -> Any:
    """The array with its elements from `start` on in front, along one dimension."""
    n = x.shape[dimension]
    runs = [lax.slice_in_dim(x, start, n, axis=dimension), lax.slice_in_dim(x, 0, start, axis=dimension)]
    return lax.concatenate(runs, dimension)


class Roll(NamedTuple):
    """What an equation computes: a roll of the variable `source`."""

    source: Any
    dimension: int
    start: int


class _Run(NamedTuple):
    """`count` elements of dimension `dimension` of `source` from `start` on; all of the other dimensions."""

    source: Any
    dimension: int
    start: int
    count: int


def find_rolls(jaxpr: Any) -> tuple[dict[int, Roll], frozenset[int]]:
    """Equations that are rolls, by their number, and the numbers of those that are needed for nothing else."""
    if not any(str(e.primitive.name) in ("concatenate", "add_any", "add") for e in jaxpr.eqns):
        return {}, frozenset()
    runs: dict[Any, _Run] = {}
    padded: dict[Any, tuple[_Run, int]] = {}
    made_by: dict[Any, int] = {}
    found: dict[int, Roll] = {}
    for number, eqn in enumerate(jaxpr.eqns):
        made_by.update(dict.fromkeys(eqn.outvars, number))
        kind = str(eqn.primitive.name)
        if kind in ("slice", "split"):
            runs.update(zip(eqn.outvars, _runs(eqn, kind), strict=False))
        elif kind == "pad" and _is_variable(eqn.invars[0]) and eqn.invars[0] in runs:
            padded.update(_padded(eqn, runs[eqn.invars[0]]))
        elif kind == "concatenate" and len(eqn.invars) == 2 and all(_is_variable(v) and v in runs for v in eqn.invars):
            first, second = (runs[v] for v in eqn.invars)
            if first.dimension == eqn.params["dimension"] and (roll := _roll((first, 0), (second, first.count))):
                found[number] = roll
        elif kind in ("add_any", "add") and all(_is_variable(v) and v in padded for v in eqn.invars):
            if roll := _roll(*sorted((padded[v] for v in eqn.invars), key=lambda placed: placed[1])):
                found[number] = roll
    return found, _needless(jaxpr, found, made_by) if found else frozenset()


def _is_variable(atom: Any) -> bool:
    return not isinstance(atom, jax_core.Literal)


def _runs(eqn: Any, kind: str) -> list[_Run]:
    source = eqn.invars[0]
    if not _is_variable(source):
        return []
    if kind == "split":
        dim, at, out = eqn.params["axis"], 0, []
        for count in eqn.params["sizes"]:
            out.append(_Run(source, dim, at, count))
            at += count
        return out
    starts, strides = eqn.params["start_indices"], eqn.params["strides"]
    before, after = source.aval.shape, eqn.outvars[0].aval.shape
    cut = [d for d, (n, m) in enumerate(zip(before, after, strict=True)) if n != m]
    if len(cut) != 1 or (strides is not None and strides[cut[0]] != 1):
        return []
    return [_Run(source, cut[0], starts[cut[0]], after[cut[0]])]


def _padded(eqn: Any, run: _Run) -> dict[Any, tuple[_Run, int]]:
    """The run among zeros, in an array of the size of its source, and where it begins there."""
    config = [tuple(map(int, c)) for c in eqn.params["padding_config"]]
    fill = eqn.invars[1]
    zero = isinstance(fill, jax_core.Literal) and not np.shape(fill.val) and fill.val == 0
    alone = all(c == (0, 0, 0) for d, c in enumerate(config) if d != run.dimension)
    low, high, inside = config[run.dimension]
    fits = inside == 0 and min(low, high) >= 0 and low + run.count + high == run.source.aval.shape[run.dimension]
    return {eqn.outvars[0]: (run, low)} if zero and alone and fits else {}


def _roll(front: tuple[_Run, int], back: tuple[_Run, int]) -> Roll | None:
    """The roll that two runs make: an array's end and then its beginning, each with its place in the result."""
    (first, low), (second, high) = front, back
    n = first.source.aval.shape[first.dimension]
    if first.source is not second.source or first.dimension != second.dimension or not 0 < first.start < n:
        return None
    whole = (second.start, second.count) == (0, first.start) and first.count == n - first.start
    placed = (low, high) == (0, first.count)
    return Roll(first.source, first.dimension, first.start) if whole and placed else None


def _needless(jaxpr: Any, found: dict[int, Roll], made_by: dict[Any, int]) -> frozenset[int]:
    """Equations whose results only rolls used."""
    readers: dict[int, set[int]] = {}
    for number, eqn in enumerate(jaxpr.eqns):
        for v in eqn.invars:
            if _is_variable(v) and v in made_by:
                readers.setdefault(made_by[v], set()).add(number)
    kept = {made_by[v] for v in jaxpr.outvars if _is_variable(v) and v in made_by}
    gone: set[int] = set()
    candidates = [made_by[v] for number in found for v in jaxpr.eqns[number].invars]
    while candidates:
        number = candidates.pop()
        if number in gone or number in kept or str(jaxpr.eqns[number].primitive.name) not in ("slice", "split", "pad"):
            continue
        if readers.get(number, set()) <= gone | set(found):
            gone.add(number)
            inputs = jaxpr.eqns[number].invars
            candidates += [made_by[v] for v in inputs if _is_variable(v) and v in made_by]
    return frozenset(gone - set(found))
