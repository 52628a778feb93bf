"""Dimensions that do not divide: padding holds the neutral element of whatever reads it, and never shows (S0.58)."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from naive_schedule import naive_schedule
from running import Original, run_and_compare

from autoshard.lowering.lower import lower
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh

SIZES = (5, 7, 13)


def values(n):
    """Far from every neutral element: all negative in one half, all positive in the other."""
    x = np.random.default_rng(n).uniform(1, 2, (n, 6)).astype(np.float32)
    x[:, :3] *= -1
    return jnp.asarray(x)


def everything(x):
    """Every op whose result depends on all elements of the uneven dimension 0."""
    norm = lambda y: y * lax.rsqrt((y * y).mean(0, keepdims=True) + 1e-3)  # noqa: E731
    return {
        "sum": x.sum(0), "mean": x.mean(0), "max": x.max(0), "min": x.min(0), "prod": (1 + x / 8).prod(0),
        "max of integers": (x * 9).astype(jnp.int32).max(0), "min of integers": (x * 9).astype(jnp.int32).min(0),
        "max of unsigned": jnp.abs(x * 9).astype(jnp.uint8).min(0), "all": (x < 9).all(0), "any": (x > 9).any(0),
        "argmax": x.argmax(0), "argmin": x.argmin(0), "softmax": jax.nn.softmax(x, 0),
        "log_softmax": jax.nn.log_softmax(x, 0), "logsumexp": jax.nn.logsumexp(x, 0), "norm": norm(x),
        "layer norm": norm(x - x.mean(0, keepdims=True)), "variance": x.var(0), "cumsum": jnp.cumsum(x, 0),
        "cumprod": jnp.cumprod(1 + x / 8, 0), "cummax": lax.cummax(x, 0), "cummin from the end": lax.cummin(x, 0, True),
        "cumlogsumexp": lax.cumlogsumexp(x, 0), "sort": jnp.sort(x, 0), "argsort": jnp.argsort(x, 0),
        "top_k": lax.top_k(x.T, 2), "contraction": x.T @ x, "outer": jnp.einsum("ia,ja->ij", x, x),
        "lookup": x[jnp.array([0, x.shape[0] - 1, 2])],
        "histogram": jnp.zeros(4).at[jnp.arange(x.shape[0]) % 4].add(x[:, 0]),
        "division by what is padded": (1 / x).sum(0), "logarithm": jnp.log(jnp.abs(x)).max(0),
        "gradient": jax.grad(lambda x: jax.nn.softmax(norm(x), 0)[0].sum())(x),
        "gradient of max": jax.grad(lambda x: (x.max(0) ** 2).sum())(x),
    }  # fmt: skip


@cache
def original(n):
    return Original(everything, values(n))


def check(n, devices, seed):
    mesh = AtomMesh.split(Mesh.from_dict({"x": devices}))
    schedule = naive_schedule(original(n).traced.program, mesh, seed, uneven=True, place=0.9)
    report = run_and_compare(original(n), schedule)
    assert report.ok, report


@pytest.mark.parametrize(("n", "devices"), [pytest.param(7, 4, marks=pytest.mark.slow), (13, 8)])
def test_reductions_over_an_uneven_dimension_are_those_of_one_device(n, devices):
    check(n, devices, 0)


@pytest.mark.slow
@pytest.mark.parametrize("devices", range(2, 9))
@pytest.mark.parametrize("n", SIZES)
def test_reductions_over_uneven_dimensions_on_any_number_of_devices(n, devices):
    for seed in range(1, 4):
        check(n, devices, seed)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("reduce", [jnp.sum, jnp.max, jnp.min, lambda x, axis: (x @ x.T).sum(axis)])
def test_padding_that_holds_a_nan_or_infinity_never_shows(n, reduce):
    """S0.58: what stands in the padding of a block, here 1/0 and log 0 of its zeros, is masked before it is read."""
    f = lambda x: reduce(1 / x + jnp.log(x), axis=0)  # noqa: E731
    x = jnp.abs(values(n))
    judged = Original(f, x)
    for devices in (3, 4, 8):
        mesh = AtomMesh.split(Mesh.from_dict({"x": devices}))
        schedule = naive_schedule(judged.traced.program, mesh, n, uneven=True, place=1.0, shares=0.0)
        found = lower(judged.traced, schedule).jit()(x)
        np.testing.assert_allclose(found, judged.expected, rtol=1e-5)


def test_empty_arrays_scalars_and_weak_types_pass_through():
    def f(x, s, empty):
        return {"joined": jnp.concatenate([x, empty]), "sum of nothing": empty.sum(0), "max": x.max() * s, "s": s + 1,
                "none": empty * 2, "product": empty.T @ empty}  # fmt: skip

    judged = Original(f, values(7), 2.0, jnp.zeros((0, 6)))
    for seed in range(3):
        schedule = naive_schedule(judged.traced.program, AtomMesh.split(Mesh.from_dict({"x": 2, "y": 4})), seed)
        assert run_and_compare(judged, schedule).ok


def test_results_without_elements_leave_whole_however_they_are_cut():
    import autoshard

    def f(x):
        return {"none": x[:, 2:2], "some": x * 2}

    x = values(20)
    plan = autoshard.plan(f, x, mesh={"x": 2, "y": 4}, hardware="tpu_v5e", constraints=[
        autoshard.Pin("out/none", '[{"x"}, {}]'), autoshard.Pin("out/some", '[{"x"}, {}]'),
    ])  # fmt: skip
    found = plan.jit()(*plan.place(x))
    assert np.asarray(found["none"]).shape == (20, 0)
    assert {s.data.shape for s in found["some"].addressable_shards} == {(10, 6)}


def test_effects_are_refused_with_the_line_they_stand_on():
    from autoshard.errors import UnsupportedError
    from autoshard.frontends.jax.function import trace

    def f(x):
        jax.debug.print("x is {}", x)
        return x * 2

    with pytest.raises(UnsupportedError, match="debug"):
        trace(f, values(5))
