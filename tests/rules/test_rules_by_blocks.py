"""Rules mean what they say: running an op block by block and putting the blocks together gives the op.

No mesh is needed. One factor (or two) is cut; every "device" runs the primitive on its blocks, with
local sizes in its parameters and the care that `local_care_of` asks for; results are put together by
the rule alone: factors of a result side by side, reduction factors by the combiner, all else equal.
"""

import itertools
from collections.abc import Iterator
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from autoshard.program.rule import ShardingRule, TensorFactors

Cut = dict[int, int]
"""Factor -> number of blocks."""


@pytest.fixture(autouse=True, scope="module")
def _cheap_compilation() -> Iterator[None]:
    """Hundreds of tiny programs are compiled: optimising them costs more than running them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def cuts(rule: ShardingRule) -> list[Cut]:
    """Each shardable factor alone, then pairs; whatever is major to a cut factor is cut down to size 1."""
    found: list[Cut] = []
    for chosen in itertools.chain(
        itertools.combinations(rule.shardable, 1), list(itertools.combinations(rule.shardable, 2))[:3]
    ):
        cut = {f: next(p for p in (2, 3, 5, rule.factor_sizes[f]) if rule.factor_sizes[f] % p == 0) for f in chosen}
        for dim in (d for t in (*rule.operands, *rule.results) for d in t):
            for position, f in enumerate(dim):
                if f in cut:
                    cut |= {major: rule.factor_sizes[major] for major in dim[:position]}
        if set(cut) <= set(rule.shardable) and cut not in found:
            found.append(cut)
    return found


def block(array: Any, factors: TensorFactors, rule: ShardingRule, cut: Cut, device: dict[int, int]) -> Any:
    """A device's part of an array: seen as an array of factors, each cut factor gives one block."""
    flat = [f for dim in factors for f in dim]
    picked = array.reshape([rule.factor_sizes[f] for f in flat])
    index = []
    for f in flat:
        local = rule.factor_sizes[f] // cut.get(f, 1)
        start = device.get(f, 0) * local
        index.append(slice(start, start + local))
    return picked[tuple(index)].reshape(local_shape(factors, rule, cut))


def local_shape(factors: TensorFactors, rule: ShardingRule, cut: Cut) -> list[int]:
    return [prod(rule.factor_sizes[f] // cut.get(f, 1) for f in dim) for dim in factors]


class Device:
    """One device of a cut: its blocks, and where they begin."""

    def __init__(self, case: Any, cut: Cut, index: dict[int, int]) -> None:
        self.case, self.rule, self.cut, self.index = case, case.rule, cut, index
        self.params = dict(case.equation.params)
        self.is_first = all(index[f] == 0 for f in cut if f in self.rule.reduction)
        self.results = [local_shape(t, self.rule, cut) for t in self.rule.results]
        self.operands = [
            block(as_array(x), t, self.rule, cut, index)
            for x, t in zip(case.operands(), self.rule.operands, strict=True)
        ]
        if not self.is_first:  # the others hold zeros of a partial operand
            for k in self.rule.accumulators:
                self.operands[k] = np.zeros_like(self.operands[k])

    def place(self, factors: tuple[int, ...]) -> tuple[int, int]:
        """Offset of this device's block in a dimension, and the dimension's whole size."""
        local = prod(self.rule.factor_sizes[f] // self.cut.get(f, 1) for f in factors)
        position = 0
        for f in factors:
            position = position * self.cut.get(f, 1) + self.index.get(f, 0)
        return position * local, prod(self.rule.factor_sizes[f] for f in factors)

    def run(self) -> list[Any]:
        special = getattr(self, "run_" + self.case.primitive.replace("-", "_").split(":")[0], None)
        out = special(*self.operands) if special else self.bind(*self.operands)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    def bind(self, *operands: Any, **changes: Any) -> Any:
        return self.case.equation.primitive.bind(*operands, **{**self.params, **changes})

    def run_broadcast_in_dim(self, x: Any) -> Any:
        return self.bind(x, shape=tuple(self.results[0]))

    def run_reshape(self, x: Any) -> Any:
        return self.bind(x, new_sizes=tuple(self.results[0]))

    def run_tile(self, x: Any) -> Any:
        return self.bind(x, reps=tuple(n // m for n, m in zip(self.results[0], x.shape, strict=True)))

    def run_iota(self) -> Any:
        offset, _ = self.place(self.rule.results[0][self.params["dimension"]])
        return self.bind(shape=tuple(self.results[0])) + offset

    def run_slice(self, x: Any) -> Any:
        limits = [
            n if self.rule.operands[0][d] and self.rule.operands[0][d][0] in self.cut else limit
            for d, (n, limit) in enumerate(zip(x.shape, self.params["limit_indices"], strict=True))
        ]
        return self.bind(x, limit_indices=tuple(limits))

    def run_dynamic_slice(self, x: Any, *starts: Any) -> Any:
        return self.bind(x, *starts, slice_sizes=tuple(self.results[0]))

    def run_dynamic_update_slice(self, x: Any, update: Any, *starts: Any) -> Any:
        """Write into the block padded by the update's size, then cut the padding off."""
        margins = [u if self.rule.operands[0][d] != self.rule.operands[1][d] else 0 for d, u in enumerate(update.shape)]
        padded = np.pad(x, [(u, u) for u in margins])
        local = []
        for d, start in enumerate(starts):
            offset, whole = self.place(self.rule.operands[0][d])
            start = np.clip(start, 0, whole - update.shape[d]) if margins[d] else 0
            local.append(np.int32(np.clip(start - offset + margins[d], 0, padded.shape[d] - update.shape[d])))
        out = self.bind(padded, update, *local)
        return out[tuple(slice(u, u + n) for u, n in zip(margins, x.shape, strict=True))]

    def run_conv_general_dilated(self, x: Any, k: Any) -> Any:
        spec = self.params["dimension_numbers"]
        features = x.shape[spec.lhs_spec[1]] // k.shape[spec.rhs_spec[1]]
        batch = x.shape[spec.lhs_spec[0]] // self.results[0][spec.out_spec[0]]
        return self.bind(x, k, feature_group_count=features, batch_group_count=batch)

    def run_gather(self, x: Any, indices: Any) -> Any:
        numbers, mode = self.params["dimension_numbers"], self.params["mode"]
        sizes = [
            n if d not in numbers.collapsed_slice_dims and size == whole and whole > 1 else size
            for d, (n, size, whole) in enumerate(
                zip(x.shape, self.params["slice_sizes"], self.case.equation.invars[0].aval.shape, strict=True)
            )
        ]
        indices = np.array(indices)
        inside, outside = np.ones(indices.shape[:-1], bool), np.zeros(indices.shape[:-1], bool)
        cut_here = False
        for column, d in enumerate(numbers.start_index_map):
            (f,) = self.rule.operands[0][d] or (-1,)
            if f not in self.cut or f not in self.rule.reduction:
                continue
            cut_here = True
            offset, whole = self.place((f,))
            i = indices[..., column]
            if mode == lax.GatherScatterMode.CLIP:
                i = np.clip(i, 0, whole - 1)
            outside |= (i < 0) | (i >= whole)
            inside &= (i >= offset) & (i < min(offset + x.shape[d], whole))
            indices[..., column] = np.clip(i - offset, 0, x.shape[d] - 1)
        out = np.asarray(self.bind(x, indices, slice_sizes=tuple(sizes)))
        if not cut_here:
            return out
        spread = lambda mask: np.expand_dims(mask, numbers.offset_dims)  # noqa: E731
        out = np.where(spread(inside), out, np.zeros_like(out))
        if mode == lax.GatherScatterMode.FILL_OR_DROP and self.is_first:
            out = np.where(spread(outside), self.fill(out.dtype), out)
        return out

    def fill(self, dtype: Any) -> Any:
        given = self.params["fill_value"]
        if given is not None:
            return np.asarray(given, dtype)
        return np.asarray(np.nan if np.issubdtype(dtype, np.inexact) else np.iinfo(dtype).min, dtype)

    def run_scatter(self, x: Any, indices: Any, updates: Any) -> Any:
        numbers, mode = self.params["dimension_numbers"], self.params["mode"]
        indices = np.array(indices)
        drops = lax.GatherScatterMode.FILL_OR_DROP
        for column, d in enumerate(numbers.scatter_dims_to_operand_dims):
            offset, whole = self.place(self.rule.operands[0][d])
            i = indices[..., column]
            if d in numbers.inserted_window_dims:
                if mode == lax.GatherScatterMode.CLIP:
                    i = np.clip(i, 0, whole - 1)
                i = np.where(i < offset, x.shape[d], i - offset)
            indices[..., column] = i
        return self.bind(x, indices, updates, mode=drops)

    run_scatter_add = run_scatter_sub = run_scatter_mul = run_scatter_max = run_scatter_min = run_scatter

    def run_ragged_dot_general(self, x: Any, y: Any, sizes: Any) -> Any:
        """The groups before the own ones, which give zeros, then the own ones, cut to the block's rows."""
        numbers = self.params["ragged_dot_dimension_numbers"]
        (ragged,) = numbers.lhs_ragged_dimensions
        first_row, _ = self.place(self.rule.operands[0][ragged])
        ends = np.cumsum(sizes)
        rows = x.shape[ragged]
        within = lambda n: np.clip(n, first_row, first_row + rows)  # noqa: E731
        local = within(ends) - within(ends - sizes)
        if group_dims := numbers.rhs_group_dimensions:
            (d,) = group_dims
            own, (start, _) = y.shape[d], self.place(self.rule.operands[1][d])
            y = np.concatenate([np.zeros_like(np.take(y, [0], axis=d)), y], d)
        else:
            own, (start, _) = self.results[0][0], self.place(self.rule.results[0][0])
        local = np.concatenate([[local[:start].sum()], local[start : start + own]]).astype(sizes.dtype)
        out = self.bind(x, y, local)
        return out if group_dims else out[1:]


COMBINE = {"add": np.add, "max": np.maximum, "min": np.minimum}


def put_together(
    rule: ShardingRule, cut: Cut, k: int, parts: dict[tuple[int, ...], np.ndarray], dtype: Any
) -> np.ndarray:
    """Result k from what the devices hold."""
    factors = rule.results[k]
    flat = [f for dim in factors for f in dim]
    out = np.zeros([rule.factor_sizes[f] for f in flat], dtype)
    order = list(cut)
    mine = [f for f in order if f in flat]
    summed = [f for f in order if f in rule.reduction]
    assert not set(mine) & set(summed), "a reduction factor in a result"
    copies: dict[tuple, dict[tuple, np.ndarray]] = {}
    for device, part in parts.items():
        at = dict(zip(order, device, strict=True))
        place = tuple(at[f] for f in mine)
        rest = tuple(at[f] for f in order if f not in mine and f not in summed)
        group = copies.setdefault(place, {})
        group[rest] = COMBINE[rule.combiner](group[rest], part) if rest in group else part
    for place, group in copies.items():
        at = dict(zip(mine, place, strict=True))
        first, *others = group.values()
        for other in others:
            np.testing.assert_array_equal(other, first)
        index = tuple(
            slice(at.get(f, 0) * (n := rule.factor_sizes[f] // cut.get(f, 1)), (at.get(f, 0) + 1) * n) for f in flat
        )
        out[index] = first.reshape([rule.factor_sizes[f] // cut.get(f, 1) for f in flat])
    return out.reshape([prod(rule.factor_sizes[f] for f in dim) for dim in factors])


def as_array(x: Any) -> Any:
    """Numpy, whose reshapes and slices need no compilation, unless it is an array of keys."""
    return x if isinstance(x, jax.Array) else np.asarray(x)


def plain(x: Any) -> np.ndarray:
    """As numpy, keys as their words."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)[..., 0]
    return np.asarray(x, np.float32) if x.dtype == jnp.bfloat16 else np.asarray(x)


def whole_run(case: Any) -> list[Any]:
    out = case.equation.primitive.bind(*map(jnp.asarray, case.operands()), **case.equation.params)
    return list(out) if isinstance(out, (tuple, list)) else [out]


def test_blocks_put_together_are_the_whole(case: Any) -> None:
    rule = case.rule
    rule.check(
        [v.aval.shape for v in case.equation.invars],
        [v.aval.shape for v in case.equation.outvars],
    )
    expected = [plain(x) for x in whole_run(case)]
    for cut in cuts(rule) if case.is_thorough else cuts(rule)[:1]:
        parts: list[dict[tuple[int, ...], np.ndarray]] = [{} for _ in expected]
        for index in itertools.product(*(range(n) for n in cut.values())):
            for k, out in enumerate(Device(case, cut, dict(zip(cut, index, strict=True))).run()):
                parts[k][index] = plain(out)
        for k, want in enumerate(expected):
            got = put_together(rule, cut, k, parts[k], want.dtype)
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5, err_msg=f"{rule} cut {cut}")


def test_partial_sums_pass_through_the_linear_sets(linear_case: Any) -> None:
    case = linear_case
    operands = [jnp.asarray(x) for x in case.operands()]
    expected = [plain(x) for x in whole_run(case)]
    rng = np.random.default_rng(1)
    for members in case.rule.linear:
        assert not set(members) & set(case.literals), "a literal is never a partial sum"
        halves = []
        for x in (operands[k] for k in members):
            part = jnp.asarray(rng.integers(-3, 4, x.shape)).astype(x.dtype)
            halves.append((part, x - part))
        sums = None
        for side in (0, 1):
            local = list(operands)
            for k, half in zip(members, halves, strict=True):
                local[k] = half[side]
            out = case.equation.primitive.bind(*local, **case.equation.params)
            out = [plain(x) for x in (out if isinstance(out, (tuple, list)) else [out])]
            sums = out if sums is None else [a + b for a, b in zip(sums, out, strict=True)]
        for got, want in zip(sums or [], expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=f"linear set {members} of {case.rule}")
