"""transformers: the models in flax of its last major version that has them."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from programs.registry import Made, cross_entropy, f32, ids, plain, program, trained, warm

SMALL = {"vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}


@program("transformers", "flax", "optax", rows=("batch/0", "batch/1"))
def transformers_bert() -> Made:
    """transformers BERT: masked language modelling by AdamW, with a schedule and decay for kernels only."""
    from transformers import BertConfig, FlaxBertForMaskedLM

    model = FlaxBertForMaskedLM(BertConfig(**SMALL, num_attention_heads=4, max_position_embeddings=32))
    kernels = jax.tree_util.tree_map_with_path(lambda path, _: "kernel" in str(path[-1]), model.params)
    tx = optax.adamw(optax.linear_schedule(1e-3, 0.0, 100), mask=kernels)

    def loss(params: Any, tokens: Any, labels: Any) -> Any:
        logits = model(tokens, params=params, train=False).logits
        return (optax.softmax_cross_entropy_with_integer_labels(logits, labels) * (labels > 20)).mean()

    return Made(trained(loss, tx), (model.params, warm(tx.init(model.params))), (ids(128, 8, 16), ids(128, 8, 16)))


@program("transformers", "flax", "optax", rows=("batch/0", "batch/1"))
def transformers_t5() -> Made:
    """transformers T5: encoder and decoder with relative positions and cross attention, by Adafactor."""
    from transformers import FlaxT5ForConditionalGeneration, T5Config

    config = T5Config(
        vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
    )  # fmt: skip
    model = FlaxT5ForConditionalGeneration(config)
    tx = optax.adafactor(1e-2)

    def loss(params: Any, tokens: Any, labels: Any) -> Any:
        shifted = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)))
        logits = model(input_ids=tokens, decoder_input_ids=shifted, params=params, train=False).logits
        return cross_entropy(logits, labels)

    return Made(trained(loss, tx), (model.params, warm(tx.init(model.params))), (ids(128, 8, 16), ids(128, 8, 8)))


@program("transformers", "flax", rows=("tokens",))
def transformers_gpt2_decode() -> Made:
    """transformers GPT-2: greedy decoding with its cache of keys and values."""
    from transformers import FlaxGPT2LMHeadModel, GPT2Config

    model = FlaxGPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=16, n_embd=32, n_layer=2, n_head=4))
    cache, mask = model.init_cache(8, 16), jnp.ones((8, 16), jnp.int32)

    def step(cache: Any, tokens: Any, at: Any, params: Any) -> Any:
        out = model(tokens, attention_mask=mask, position_ids=at, past_key_values=cache, params=params)
        return out.past_key_values, jnp.argmax(out.logits, -1).astype(jnp.int32), at + 1, out.logits

    return Made(step, (cache, ids(128, 8, 1), jnp.zeros((8, 1), jnp.int32)), (model.params,))


@program("transformers", "flax", "optax", rows=("batch/0", "batch/1"))
def transformers_clip() -> Made:
    """transformers CLIP: images and texts, the contrastive loss over the whole batch."""
    from transformers import CLIPConfig, FlaxCLIPModel

    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = CLIPConfig(
        text_config={**tower, "vocab_size": 128, "max_position_embeddings": 16, "eos_token_id": 2},
        vision_config={**tower, "image_size": 16, "patch_size": 8}, projection_dim=16,
    )  # fmt: skip
    model = FlaxCLIPModel(config, input_shape=((1, 8), (1, 16, 16, 3)))
    tx = plain()

    def loss(params: Any, tokens: Any, images: Any) -> Any:
        out = model(input_ids=tokens, pixel_values=images, params=params, train=False)
        same = jnp.arange(len(tokens))
        return cross_entropy(out.logits_per_text, same) + cross_entropy(out.logits_per_image, same)

    return Made(trained(loss, tx), (model.params, warm(tx.init(model.params))), (ids(128, 8, 8), f32(8, 3, 16, 16)))
