"""Dispatch of tokens to experts, judged by running every expert on every token."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autoshard.models import moe
from autoshard.models.options import MoeOptions

OPTIONS = MoeOptions(batch=3, seq=12, d_model=8, d_ff=16, experts=5, experts_per_token=2, capacity_factor=100.0)


def compiled(function):
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": "0"})


@pytest.fixture(scope="module")
def layer_and_x():
    rng = np.random.default_rng(1)
    draw = {name: rng.normal(size=p.shape) * p.std for name, p in moe.moe_table(OPTIONS).items()}
    layer = {name: jnp.asarray(values, jnp.float32) for name, values in draw.items()}
    return layer, jnp.asarray(rng.normal(size=(3, 12, 8)), jnp.float32)


def every_expert_on_every_token(layer, x, chosen, gates, options):
    gate, up = (jnp.einsum("bsd,edf->bsef", x, layer[name]) for name in ("w_gate", "w_up"))
    hidden = jax.nn.silu(gate) * up
    outputs = jnp.einsum("bsef,efd->bsed", hidden, layer["w_down"])
    weights = jnp.einsum("bske,bsk->bse", jax.nn.one_hot(chosen, options.experts), gates)
    return jnp.einsum("bse,bsed->bsd", weights, outputs)


@pytest.mark.parametrize("dispatch", ["einsum", "ragged"])
def test_dispatch_equals_every_expert_on_every_token(layer_and_x, dispatch):
    layer, x = layer_and_x

    @compiled
    def both(layer, x):
        chosen, gates, _ = moe.route(layer, x, OPTIONS)
        return tuple(f(layer, x, chosen, gates, OPTIONS) for f in (moe.EXPERTS[dispatch], every_expert_on_every_token))

    found, expected = both(layer, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_gradients_of_both_dispatches_agree(layer_and_x):
    layer, x = layer_and_x

    def gradients(dispatch):
        options = replace(OPTIONS, dispatch=dispatch)

        def loss(layer, x):
            y, balance = moe.feed_forward(layer, x, options)
            return jnp.sum(jnp.square(y)) + balance

        return compiled(jax.grad(loss, argnums=(0, 1)))(layer, x)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), gradients("einsum"), gradients("ragged")
    )


def test_tokens_over_the_capacity_get_nothing_and_first_choices_come_first():
    # capacity 1 each: expert 0 is the first choice of token 1 and the second choice of token 0, so token 1 has it
    options = MoeOptions(
        batch=1, seq=2, d_model=2, heads=1, d_ff=2, experts=2, experts_per_token=2, capacity_factor=0.5
    )
    assert options.capacity == 1
    layer = {"w_gate": jnp.ones((2, 2, 2)), "w_up": jnp.ones((2, 2, 2)), "w_down": jnp.ones((2, 2, 2))}
    x = jnp.array([[[1.0, 0.0], [0.0, 1.0]]])
    chosen = jnp.array([[[1, 0], [0, 1]]])
    gates = jnp.array([[[0.75, 0.25], [0.5, 0.5]]])
    y = moe.einsum_experts(layer, x, chosen, gates, options)
    whole = 2 * jax.nn.silu(1.0)  # each expert gives this in both dimensions
    np.testing.assert_allclose(y[0], [[0.75 * whole] * 2, [0.5 * whole] * 2], rtol=1e-5)


def test_gates_are_the_largest_probabilities_renormalised(layer_and_x):
    layer, x = layer_and_x
    chosen, gates, _ = moe.route(layer, x, OPTIONS)
    probability = jax.nn.softmax(x @ layer["router"])
    largest = jnp.take_along_axis(probability, chosen, axis=-1)
    np.testing.assert_array_equal(chosen, jnp.argsort(-probability, axis=-1)[..., :2])
    np.testing.assert_allclose(gates, largest / largest.sum(-1, keepdims=True), rtol=1e-5)


def test_balance_loss_is_one_when_the_router_knows_nothing(layer_and_x):
    layer, x = layer_and_x
    _, _, balance = moe.route(layer | {"router": jnp.zeros_like(layer["router"])}, x, OPTIONS)
    assert balance == pytest.approx(1.0)
