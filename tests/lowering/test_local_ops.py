"""Every primitive's local form: under random placements, even and uneven, results are those of one device."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from naive_schedule import MESHES, naive_schedule
from primitive_families import FAMILIES, together
from running import Original, run_and_compare

import autoshard
from autoshard import Pin


@cache
def original(family: str) -> Original:
    cases, args = FAMILIES[family]()
    return Original(together(cases), *args)


def check(family: str, mesh: str, seed: int, *, uneven: bool) -> None:
    program = original(family).traced.program
    schedule = naive_schedule(program, MESHES[mesh], seed, uneven=uneven)
    report = run_and_compare(original(family), schedule)
    assert report.ok, report


EVEN_OFTEN = ("contractions", "lookups", "reductions")
"""Uneven placements pad besides all that even ones do: of these the larger families stand for all."""


@pytest.mark.parametrize(
    "family", [f if f in EVEN_OFTEN else pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES]
)
def test_random_even_placements_give_the_results_of_one_device(family):
    check(family, "2x4", 0, uneven=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_uneven_placements_give_the_results_of_one_device(family):
    check(family, "6", 1, uneven=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("family", FAMILIES)
def test_many_random_placements_give_the_results_of_one_device(family, mesh, seed):
    check(family, mesh, seed, uneven=bool(seed % 2))


@pytest.mark.parametrize(("mesh", "seed"), [("2x4", 2), ("6", 8)])
def test_transforms_run_whatever_the_layout_of_the_collective_before_them(mesh, seed):
    """XLA for CPU lets its FFT take the layout of a gather, and refused that when it ran."""
    x = np.random.default_rng(0).standard_normal((12, 12)).astype(np.float32)
    program = Original(lambda x: jnp.fft.fft2(x).imag, x)
    schedule = naive_schedule(program.traced.program, MESHES[mesh], seed, uneven=True)
    report = run_and_compare(program, schedule)
    assert report.ok, report


@pytest.mark.parametrize("sizes", [[6, 6, 6, 6], [0, 3, 0, 20], [2, 2, 0, 3]])
def test_groups_that_overrun_the_rows_end_with_them_on_every_device(sizes):
    """Like masks, which JAX computes with: of four groups of six, eight rows are six and two."""
    of_rows = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])

    def f(rows, experts, sizes):
        return lax.ragged_dot(rows, experts, sizes), lax.ragged_dot_general(rows, rows, sizes, of_rows)

    experts = jnp.arange(4 * 256.0 * 256).reshape(4, 256, 256) % 7
    args = jnp.arange(8 * 256.0).reshape(8, 256) % 5, experts, jnp.asarray(sizes)
    cut = Pin("experts", '[{"x"}, {}, {}]'), Pin("out/1", '[{"x"}, {}, {}]')
    plan = autoshard.plan(f, *args, mesh={"x": 4}, hardware="tpu_v5e", constraints=cut)
    for found, expected in zip(plan.jit()(*args), f(*args), strict=True):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_scans_over_nothing_and_unrolled_ones_beside_a_loop_of_unknown_length():
    """A body that never runs is left out of the program; two bodies in a round of half the rounds are the same work."""

    def f(xs, v):
        unrolled = lax.scan(lambda c, x: (jnp.tanh(c + x), c), v, xs, unroll=2)
        nothing = lax.scan(lambda c, x: (c + 1, x * c), 0.0, xs[:0])
        unknown = lax.while_loop(lambda s: (s**2).sum() < 100, lambda s: s * 1.7, v)
        return unrolled, nothing, unknown

    rng = np.random.default_rng(0)
    program = Original(f, *(rng.standard_normal(shape).astype(np.float32) for shape in ((4, 12, 6), (12, 6))))
    for seed in range(3):
        report = run_and_compare(program, naive_schedule(program.traced.program, MESHES["2x4"], seed, uneven=False))
        assert report.ok, report


def test_no_primitive_of_the_families_is_unknown_to_the_rules():
    assert [original(f).traced.program.warnings for f in FAMILIES] == [()] * len(FAMILIES)
