"""Without a memory limit bounds are mostly tight: what is much cheaper than the best plan seen is found near them."""

from typing import Any

import jax
import jax.numpy as jnp
from plan_cases import f32

from autoshard import plan


def step(params: Any, tokens: Any) -> Any:
    """A train step on tokens, the last of which are only wanted: their ids are cut out of one array."""

    def loss(p: Any) -> Any:
        x = p["embed"][tokens[:, :-1]]
        logits = (x + jax.nn.gelu(x @ p["w1"]) @ p["w2"]) @ p["out"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1).mean()

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value


def test_costs_near_the_bound_are_guessed_before_exact_search_looks_for_any() -> None:
    params = {"embed": f32(1024, 256), "w1": f32(256, 1024), "w2": f32(1024, 256), "out": f32(256, 1024)}
    found = plan(
        step, params, jax.ShapeDtypeStruct((16, 129), jnp.int32), mesh={"data": 2, "model": 4}, hardware="tpu_v5e",
        donate_argnums=(0,), memory_limit="none",
    )  # fmt: skip
    (solved,) = found.run["rounds"]
    assert found.status == "optimal" and "exact" not in solved["stages"]
    assert "guesses" in solved["stages"]
