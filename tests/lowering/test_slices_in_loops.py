"""Slices that a loop takes one after the other are blocks: a device needs those of its own iterations alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from running import FAST
from test_independent_loops import both

from autoshard import Pin, plan
from autoshard.frontends.jax.parts import Parts

X = np.arange(48, dtype=np.float32).reshape(2, 24) / 10
W = np.ones(3, np.float32)


def by_fori(x: Any, w: Any) -> Any:
    def body(i: Any, total: Any) -> Any:
        return total + jnp.sin(jax.lax.dynamic_slice_in_dim(x, 3 * i, 3, axis=1)) @ w

    return jax.lax.fori_loop(0, 8, body, jnp.zeros(2))


def by_map(x: Any, w: Any) -> Any:
    return jax.lax.map(lambda i: jax.lax.dynamic_slice_in_dim(x, i * 3, 3, axis=1) @ w, jnp.arange(8))


def by_rows(x: Any, w: Any) -> Any:
    return jax.lax.map(lambda i: x[:, i] * w[0], jnp.arange(24))


def backwards(x: Any, w: Any) -> Any:
    def body(start: Any, _: Any) -> Any:
        return start - 3, jax.lax.dynamic_slice_in_dim(x, start, 3, axis=1) @ w

    return jax.lax.scan(body, np.int32(21), None, length=8, reverse=True)[1]


def reversed_blocks(x: Any, w: Any) -> Any:
    return jax.lax.map(lambda i: jax.lax.dynamic_slice_in_dim(x, 21 - i * 3, 3, axis=1) @ w, jnp.arange(8))


def overlapping(x: Any, w: Any) -> Any:
    return jax.lax.map(lambda i: jax.lax.dynamic_slice_in_dim(x, i * 2, 3, axis=1) @ w, jnp.arange(8))


def a_part_of_it(x: Any, w: Any) -> Any:
    return jax.lax.map(lambda i: jax.lax.dynamic_slice_in_dim(x, i * 3, 3, axis=1) @ w, jnp.arange(4))


def kinds(f: Callable[..., Any], *args: Any) -> set[str]:
    """The primitives of a function with its loops in parts."""
    text = str(Parts((4,)).rewritten(jax.make_jaxpr(f)(*args)))
    return {kind for kind in ("dynamic_slice", "gather") if f"{kind}[" in text}


@pytest.mark.parametrize("f", [by_fori, by_map, by_rows, backwards])
def test_slices_of_a_whole_array_one_after_the_other_are_blocks(f: Callable[..., Any]) -> None:
    assert kinds(f, X, W) == set()
    for ours, theirs in both(f, (X, W), 4):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("f", [reversed_blocks, overlapping, a_part_of_it])
def test_other_slices_are_gathered(f: Callable[..., Any]) -> None:
    assert kinds(f, X, W) == {"gather"}
    for ours, theirs in both(f, (X, W), 4):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_slice_by_the_index_of_the_loop_sends_nothing() -> None:
    def f(x: Any, w: Any) -> Any:
        def body(i: Any, total: Any) -> Any:
            return total + jnp.tanh(jax.lax.dynamic_slice_in_dim(x, 512 * i, 512) @ w).sum(0)

        return jax.lax.fori_loop(0, 16, body, jnp.zeros(64))

    specs = jax.ShapeDtypeStruct((8192, 64), jnp.float32), jax.ShapeDtypeStruct((64, 64), jnp.float32)
    rows = Pin("x", '[{"x"}, {}]')
    made = plan(f, *specs, mesh={"x": 8}, hardware="tpu_v5e", constraints=rows, loop_parts=8)
    sent = made.collectives
    assert set(sent["times"]) == {1} and sent["bytes"].max() <= 64 * 64 * 4  # w, or the totals: never x
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s.shape, np.float32) for s in specs]
    run = made.jit().lower(*specs).compile(compiler_options=FAST)
    np.testing.assert_allclose(run(*made.place(*args)), jax.jit(f)(*args), rtol=1e-4, atol=1e-4)
