"""recurrentgemma: Griffin's recurrent and local attention blocks."""

from typing import Any

import jax
import jax.numpy as jnp

from programs.registry import Made, cross_entropy, ids, plain, program, trained, warm


def _griffin() -> Any:
    from recurrentgemma import jax as griffin

    blocks = (griffin.TemporalBlockType.RECURRENT, griffin.TemporalBlockType.ATTENTION)
    config = griffin.GriffinConfig(
        vocab_size=128, width=32, mlp_expanded_width=64, num_heads=4, block_types=blocks, attention_window_size=8,
        embeddings_scale_by_sqrt_dim=True, logits_soft_cap=30.0, lru_width=32,
        scan_type=griffin.ScanType.LINEAR_NATIVE,
    )  # fmt: skip
    return griffin.Griffin(config, dtype=jnp.float32, param_dtype=jnp.float32)


def _positions(batch: int, length: int) -> jax.Array:
    return jnp.broadcast_to(jnp.arange(length), (batch, length))


@program("recurrentgemma", "flax", "optax", rows=("batch/0", "batch/1"))
def recurrentgemma_train() -> Made:
    """recurrentgemma Griffin: a train step with its linear recurrence and windows of attention."""
    model, tokens, positions = _griffin(), ids(128, 8, 16), _positions(8, 16)
    params = jax.jit(model.init)(jax.random.key(0), tokens, positions)
    tx = plain()

    def loss(params: Any, tokens: Any, positions: Any) -> Any:
        logits, _ = model.apply(params, tokens, positions, return_cache=False)
        return cross_entropy(logits[:, :-1], tokens[:, 1:])

    return Made(trained(loss, tx), (params, warm(tx.init(params))), (tokens, positions))


@program("recurrentgemma", "flax", rows=("tokens",))
def recurrentgemma_decode() -> Made:
    """recurrentgemma Griffin: greedy decoding with its recurrent state and its ring of keys and values."""
    model, tokens, positions = _griffin(), ids(128, 8, 12), _positions(8, 12)
    params = jax.jit(model.init)(jax.random.key(0), tokens, positions)
    logits, cache = jax.jit(model.apply)(params, tokens, positions)

    def step(cache: Any, tokens: Any, at: Any, params: Any) -> Any:
        logits, cache = model.apply(params, tokens, at, cache)
        return cache, jnp.argmax(logits, -1).astype(jnp.int32), at + 1, logits

    first = jnp.argmax(logits[:, -1:], -1).astype(jnp.int32)
    return Made(step, (cache, first, positions[:, -1:] + 1), (params,))
