"""Ties are settled against cutting along a stack of layers (a moment of an optimizer is such a stack)."""

from typing import Any

import jax
import jax.numpy as jnp
from plan_cases import f32, program_of

from autoshard import plan
from autoshard.formulation.stacks import stacked_values


def train(w: Any, m: Any, x: Any) -> Any:
    """A scan over stacked layers and an update with momentum."""

    def loss(w: Any) -> Any:
        return jnp.square(jax.lax.scan(lambda c, wk: (jnp.tanh(c @ wk), None), x, w)[0]).sum()

    m = 0.9 * m + jax.grad(loss)(w)
    return w - 0.1 * m, m


SPECS = (f32(4, 64, 64), f32(4, 64, 64), f32(32, 64))


def test_what_is_updated_with_a_stack_is_one() -> None:
    program = program_of(train, *SPECS)
    w, m, x = program.body.args
    found = stacked_values(program, {})
    assert {w, m} <= found and x not in found


def test_without_a_scan_there_are_no_stacks() -> None:
    program = program_of(lambda w, m: w - 0.1 * m, f32(4, 8), f32(4, 8))
    assert stacked_values(program, {}) == frozenset()


def test_a_moment_is_cut_within_its_layers() -> None:
    found = plan(
        train, *SPECS, mesh={"x": 4}, hardware="tpu_v5e", argnames=["w", "m", "x"], donate_argnums=(0, 1),
        memory_limit=250_000,  # less than weights and moments take that are whole on every device
    )  # fmt: skip
    assert found["m"].startswith("[{}, ")
    assert '"x"' in found["m"]
