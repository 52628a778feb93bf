"""MaxText: its decoders as its configuration makes them, without shardings of their own."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from programs.registry import Made, cross_entropy, ids, plain, program, trained, warm

BATCH, LENGTH, VOCABULARY = 8, 16, 128


def _decoder(*stated: str) -> Made:
    """A train step of the decoder of a configuration; statements are `name=value`, as on MaxText's command line."""
    import flax.linen as nn
    import maxtext
    from maxtext.configs import pyconfig
    from maxtext.models import models

    base = str(Path(maxtext.__path__[0]) / "configs" / "base.yml")
    config = pyconfig.initialize(
        [
            "", base, "run_name=third_party", "base_emb_dim=32", f"vocab_size={VOCABULARY}", "base_num_query_heads=4",
            "base_num_kv_heads=4", "head_dim=8", "base_mlp_dim=64", "base_num_decoder_layers=2",
            f"max_target_length={LENGTH}", "per_device_batch_size=1", "skip_jax_distributed_system=true",
            "enable_checkpointing=false", "attention=dot_product", "dtype=float32", "weight_dtype=float32",
            "dataset_type=synthetic", *stated,
        ]
    )  # fmt: skip
    devices = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape([1] * len(config.mesh_axes)), config.mesh_axes)
    model = models.transformer_as_linen(config, devices, quant=None, model_mode="train")
    tokens = ids(VOCABULARY, BATCH, LENGTH)
    positions = jnp.broadcast_to(jnp.arange(LENGTH, dtype=jnp.int32), (BATCH, LENGTH))

    def apply(variables: Any, tokens: Any, positions: Any, **words: Any) -> Any:
        call = model.apply if variables is not None else model.init
        first = variables if variables is not None else {"params": jax.random.key(0)}
        return call(first, tokens, positions, decoder_segment_ids=jnp.ones_like(tokens), enable_dropout=False, **words)

    params = nn.unbox(jax.jit(lambda t, p: apply(None, t, p))(tokens, positions))["params"]
    tx = plain()

    def loss(params: Any, tokens: Any, positions: Any) -> Any:
        out = apply({"params": params}, tokens, positions, rngs={"params": jax.random.key(0)})
        logits = out[0] if isinstance(out, tuple) else out
        return cross_entropy(logits[:, :-1], tokens[:, 1:])

    return Made(trained(loss, tx), (params, warm(tx.init(params))), (tokens, positions))


@program("maxtext", "flax", "optax", rows=("batch/0", "batch/1"))
def maxtext_llama() -> Made:
    """MaxText Llama 2: dense layers in a scan, with its recomputation."""
    return _decoder("decoder_block=llama2")


@program("maxtext", "flax", "optax", rows=("batch/0", "batch/1"))
def maxtext_mixtral() -> Made:
    """MaxText Mixtral: 4 experts, 2 for each token, by ragged_dot over sorted tokens."""
    return _decoder(
        "decoder_block=mixtral", "num_experts=4", "num_experts_per_tok=2", "sparse_matmul=true", "megablox=false",
        "base_num_decoder_layers=1", "base_moe_mlp_dim=64",
    )  # fmt: skip


@program("maxtext", "flax", "optax", rows=("batch/0", "batch/1"))
def maxtext_mla() -> Made:
    """MaxText DeepSeek: multi-head latent attention in a dense and a routed layer."""
    return _decoder(
        "decoder_block=deepseek", "attention_type=mla", "q_lora_rank=16", "kv_lora_rank=16", "qk_nope_head_dim=8",
        "qk_rope_head_dim=8", "v_head_dim=8", "num_experts=4", "num_experts_per_tok=2", "shared_experts=1",
        "first_num_dense_layers=1", "base_moe_mlp_dim=64", "sparse_matmul=false", "megablox=false",
        "capacity_factor=1.5", "rope_type=yarn", "max_position_embeddings=64", "original_max_position_embeddings=16",
    )  # fmt: skip
