"""Rolls in jaxprs: two runs of one array that change places (`jnp.roll`, its gradient, a join of two slices).

JAX has no primitive for them. As slices that are joined, each run would be moved by itself; as one op every element
moves once, to where it is wanted.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax.extend import core as jax_core
from jax.interpreters import mlir


@cache
def roll_primitive() -> Any:
    """Element r of dimension `dimension` of the result is element ``(r + start) mod n`` of the operand."""
    roll = jax_core.Primitive("roll")
    roll.def_impl(rolled)
    roll.def_abstract_eval(lambda aval, **_: aval)
    mlir.register_lowering(roll, mlir.lower_fun(rolled, multiple_results=False))
    return roll


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
        elif kind == "concatenate" and len(eqn.invars) == 2 and all(v in runs for v in eqn.invars if _is_variable(v)):
            found.update(_joined(number, eqn, [runs[v] for v in eqn.invars if _is_variable(v)]))
        elif kind in ("add_any", "add") and all(_is_variable(v) and v in padded for v in eqn.invars):
            found.update(_added(number, eqn, [padded[v] for v in eqn.invars]))
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


def _joined(number: int, eqn: Any, runs: Sequence[_Run]) -> dict[int, Roll]:
    if len(runs) != 2:
        return {}
    first, second = runs
    dim = eqn.params["dimension"]
    same = first.source is second.source and first.dimension == second.dimension == dim
    turned = second.start == 0 and first.start == second.count
    return _whole(number, first, second) if same and turned else {}


def _added(number: int, eqn: Any, parts: Sequence[tuple[_Run, int]]) -> dict[int, Roll]:
    (first, low), (second, high) = sorted(parts, key=lambda part: part[1])
    same = first.source is second.source and first.dimension == second.dimension
    turned = low == 0 and high == first.count and second.start == 0 and first.start == second.count
    return _whole(number, first, second) if same and turned else {}


def _whole(number: int, first: _Run, second: _Run) -> dict[int, Roll]:
    """The roll that puts `first`, the end of an array, before `second`, its beginning."""
    n = first.source.aval.shape[first.dimension]
    if first.count + second.count != n or not first.count or not second.count:
        return {}
    return {number: Roll(first.source, first.dimension, first.start)}


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
