"""Losses and optimizers of optax."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from programs.registry import Made, f32, ids, program, trained, warm


@program("optax", rows=("x",))
def optax_losses() -> Made:
    """CTC loss (a scan with dynamic updates), cosine distance, KL divergence and a hinge, with their gradients."""
    logits, labels = f32(4, 12, 16), ids(15, 4, 5) + 1

    def step(logits: Any, x: Any, labels: Any) -> Any:
        def loss(logits: Any, x: Any) -> Any:
            pad = jnp.zeros(logits.shape[:2])
            ctc = optax.ctc_loss(logits, pad, labels, jnp.zeros(labels.shape)).mean()
            cosine = optax.cosine_distance(x, jnp.roll(x, 1, axis=0), epsilon=1e-6).mean()
            divergence = optax.kl_divergence(jax.nn.log_softmax(x), jax.nn.softmax(x[::-1])).mean()
            return ctc + cosine + divergence + optax.hinge_loss(x, jnp.sign(x + 0.5)).mean()

        value, (first, second) = jax.value_and_grad(loss, argnums=(0, 1))(logits, x)
        return logits - 0.1 * first, x - 0.1 * second, value

    return Made(step, (logits, f32(8, 24)), (labels,), carry={"out/0": "logits", "out/1": "x"})


@program("optax", rows=("batch/0",))
def optax_muon() -> Made:
    """optax.contrib.muon: Newton-Schulz iterations on matrices, Adam on vectors, gradients averaged over two steps."""
    params = {"first": f32(32, 64) / 6, "bias": jnp.full(64, 0.1), "second": f32(64, 32) / 8}
    tx = optax.MultiSteps(optax.contrib.muon(1e-2), every_k_schedule=2)

    def loss(params: Any, x: Any) -> Any:
        return jnp.square(jnp.tanh(x @ params["first"] + params["bias"]) @ params["second"] - x).mean()

    return Made(trained(loss, tx), (params, warm(tx.init(params))), (f32(16, 32),))
