"""tunix: its Llama 3, Qwen3 with experts, Gemma 3 and GRPO; qwix for low-rank adapters."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from programs.registry import Made, cross_entropy, ids, plain, program, trained, warm

SIZES = {
    "num_layers": 1, "vocab_size": 128, "embed_dim": 32, "hidden_dim": 64, "num_heads": 8, "head_dim": 8,
    "num_kv_heads": 4, "rope_theta": 10_000, "norm_eps": 1e-6,
}  # fmt: skip


def _llama3() -> Any:
    from flax import nnx
    from tunix.models.llama3.model import Llama3, ModelConfig

    return Llama3(ModelConfig(**SIZES), rngs=nnx.Rngs(0))


def _inputs(batch: int, length: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens, their positions, and a causal mask."""
    positions = jnp.broadcast_to(jnp.arange(length), (batch, length))
    mask = jnp.broadcast_to(jnp.tril(jnp.ones((length, length), bool)), (batch, length, length))
    return ids(128, batch, length), positions, mask


def _fine_tuning(model: Any, tx: Any) -> Made:
    from flax import nnx

    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params: Any, tokens: Any, positions: Any, mask: Any) -> Any:
        logits, _ = nnx.merge(graph, params, rest)(tokens, positions, None, mask)
        return cross_entropy(logits[:, :-1], tokens[:, 1:])

    return Made(trained(loss, tx), (params, warm(tx.init(params))), _inputs(8, 16))


@program("google-tunix", "flax", "optax", rows=("batch/0",))
def tunix_llama3() -> Made:
    """tunix Llama 3: supervised fine-tuning of all weights by AdamW."""
    return _fine_tuning(_llama3(), optax.adamw(1e-3))


@program("google-tunix", "flax", "optax", rows=("batch/0",))
def tunix_qwen3_moe() -> Made:
    """tunix Qwen3 with 4 experts, 2 for each token, its decoder layers recomputed."""
    from flax import nnx
    from tunix.models.qwen3.model import ModelConfig, Qwen3, RematConfig

    config = ModelConfig(**SIZES, num_experts=4, num_experts_per_tok=2, remat_config=RematConfig.DECODER)
    return _fine_tuning(Qwen3(config, rngs=nnx.Rngs(0)), plain())


@program("google-tunix", "flax", "optax", rows=("batch/0", "batch/1"))
def tunix_grpo() -> Made:
    """tunix GRPO: its loss on Llama 3 with clipping and a KL penalty to reference log-probabilities."""
    from flax import nnx
    from tunix.rl import algo_core, common
    from tunix.rl.grpo.grpo_learner import GRPOConfig

    graph, params, rest = nnx.split(_llama3(), nnx.Param, ...)
    config, tx = GRPOConfig(), plain()
    config.temperature = 1.0  # the learner takes it from the configuration of its sampler
    prompts, completions = ids(126, 8, 8) + 2, ids(126, 8, 8) + 2
    reference = -jnp.ones((8, 8)) * 4.5

    def loss(params: Any, prompts: Any, completions: Any, advantages: Any, reference: Any) -> Any:
        example = common.TrainExample(
            prompt_ids=prompts, prompt_mask=prompts > 0, completion_ids=completions,
            completion_mask=jnp.ones(completions.shape), advantages=advantages, ref_per_token_logps=reference,
            old_per_token_logps=reference,
        )  # fmt: skip
        model = nnx.merge(graph, params, rest)
        return algo_core.grpo_loss_fn(model, example, config, pad_id=0, eos_id=1)[0]

    rewards = jnp.asarray([1.0, -1.0, 0.5, -0.5, 0.3, -0.3, 0.1, -0.1])
    return Made(trained(loss, tx), (params, warm(tx.init(params))), (prompts, completions, rewards, reference))


@program("google-tunix", "flax", rows=("tokens",))
def tunix_llama3_decode() -> Made:
    """tunix Llama 3: greedy decoding, one token a step, with its cache of keys and values."""
    from flax import nnx

    graph, params, rest = nnx.split(_llama3(), nnx.Param, ...)
    batch, length = 8, 16
    one = {
        "k": jnp.zeros((batch, length, SIZES["num_kv_heads"], SIZES["head_dim"])),
        "v": jnp.zeros((batch, length, SIZES["num_kv_heads"], SIZES["head_dim"])),
        "end_index": jnp.zeros((batch,), jnp.int32),
    }
    cache = {f"layer_{i}": dict(one) for i in range(SIZES["num_layers"])}

    def step(cache: Any, tokens: Any, at: Any, params: Any) -> Any:
        mask = jnp.broadcast_to(jnp.arange(length) <= at, (batch, 1, length))
        positions = jnp.broadcast_to(at, (batch, 1))
        logits, cache = nnx.merge(graph, params, rest)(tokens, positions, cache, mask)
        return cache, jnp.argmax(logits, -1).astype(jnp.int32), at + 1, logits

    return Made(step, (cache, ids(128, batch, 1), jnp.int32(0)), (params,))


@program("google-tunix", "qwix", "flax", "optax", rows=("batch/0",))
def qwix_lora() -> Made:
    """qwix low-rank adapters on tunix Llama 3: only the adapters are trained."""
    import qwix
    from flax import nnx

    model = _llama3()
    tokens, positions, mask = _inputs(8, 16)
    provider = qwix.LoraProvider(module_path=".*q_proj|.*gate_proj|.*down_proj", rank=4, alpha=8.0)
    adapted = qwix.apply_lora_to_model(
        model, provider, input_tokens=tokens, positions=positions, cache=None, attention_mask=mask, rngs=nnx.Rngs(1)
    )
    graph, adapters, fixed = nnx.split(adapted, nnx.LoRAParam, ...)
    adapters = jax.tree.map(lambda x: x + 0.01, adapters)  # the second factor starts at zero
    tx = optax.adamw(1e-3)

    def loss(adapters: Any, fixed: Any, tokens: Any, positions: Any, mask: Any) -> Any:
        logits, _ = nnx.merge(graph, adapters, fixed)(tokens, positions, None, mask)
        return cross_entropy(logits[:, :-1], tokens[:, 1:])

    def step(adapters: Any, opt: Any, *batch: Any) -> Any:
        return trained(loss, tx)(adapters, opt, batch[-1], *batch[:-1])

    return Made(step, (adapters, warm(tx.init(adapters))), (tokens, positions, mask, fixed))
