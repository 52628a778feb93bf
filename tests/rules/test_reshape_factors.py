"""Reshapes of any two shapes: factors fit both, and their blocks are blocks on both sides (S2.16 to S2.18)."""

from itertools import pairwise
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoshard.program.rule import ShardingRule, TensorFactors
from autoshard.program.types import TensorType
from autoshard.rules import rule_for

PRIMES = st.lists(st.sampled_from([1, 2, 2, 3, 5]), min_size=1, max_size=5)


@st.composite
def two_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same primes in two orders, each grouped into dimensions at random places."""
    primes = draw(PRIMES)

    def shape(order: list[int]) -> tuple[int, ...]:
        cuts = sorted(draw(st.sets(st.integers(1, max(len(order) - 1, 1)))))
        bounds = [0, *(c for c in cuts if c < len(order)), len(order)]
        return tuple(prod(order[i:j]) for i, j in pairwise(bounds))

    return shape(primes), shape(draw(st.permutations(primes)))


def reshape_rule(source: tuple[int, ...], target: tuple[int, ...]) -> ShardingRule:
    return rule_for("reshape", [TensorType(source, "float32")], [TensorType(target, "float32")], {}).rule


def first_block(array: np.ndarray, factors: TensorFactors, rule: ShardingRule, cut: dict[int, int]) -> np.ndarray:
    """The block of the first device when the dimensions are simply cut into equal parts."""
    index = tuple(slice(n // prod(cut.get(f, 1) for f in dim)) for n, dim in zip(array.shape, factors, strict=True))
    return array[index]


@given(two_shapes())
def test_factors_multiply_to_both_shapes_s2_13(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, target = shapes
    reshape_rule(source, target).check([source], [target])


@given(two_shapes())
def test_a_shardable_factor_behind_fully_sharded_ones_is_a_local_reshape(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    source, target = shapes
    rule = reshape_rule(source, target)
    whole = np.arange(prod(source)).reshape(source)
    for f in rule.shardable:
        cut = {f: rule.factor_sizes[f]}
        for _ in rule.factor_sizes:  # whatever is major to a cut factor is fully cut too, and so on
            for dim in (*rule.operands[0], *rule.results[0]):
                last = max((dim.index(g) for g in cut if g in dim), default=0)
                cut |= {major: rule.factor_sizes[major] for major in dim[:last]}
        assert not set(cut) & rule.need_replication, f"{rule}: factor {f} lies behind one that must be whole"
        local = first_block(whole, rule.operands[0], rule, cut)
        expected = first_block(whole.reshape(target), rule.results[0], rule, cut)
        np.testing.assert_array_equal(local.reshape(expected.shape), expected)


@given(two_shapes())
def test_reshaping_back_has_the_same_shared_factors(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, target = shapes
    there, back = reshape_rule(source, target), reshape_rule(target, source)
    assert sorted(there.factor_sizes) == sorted(back.factor_sizes)
    assert len(there.shardable) == len(back.shardable)


@given(PRIMES)
def test_refining_a_shape_leaves_no_factor_whole(primes: list[int]) -> None:
    assert reshape_rule((prod(primes),), tuple(primes)).need_replication == frozenset()
    assert reshape_rule(tuple(primes), (prod(primes),)).need_replication == frozenset()
