"""keras and keras-hub."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from programs.registry import Made, cross_entropy, f32, ids, plain, program, warm


@program("keras", rows=("images", "labels"))
def keras_mobilenet_v3() -> Made:
    """keras.applications.MobileNetV3Small: depthwise convolutions, squeeze and excite, batch norm, hard swish."""
    import keras

    model = keras.applications.MobileNetV3Small(
        weights=None, input_shape=(32, 32, 3), classes=8, include_preprocessing=False, dropout_rate=0.0
    )
    return _keras(model, f32(16, 32, 32, 3), ids(8, 16))


@program("keras", rows=("images", "labels"))
def keras_resnet50() -> Made:
    """keras.applications.ResNet50 with its loss from optax."""
    import keras

    model = keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=8)
    return _keras(model, f32(16, 32, 32, 3), ids(8, 16))


def _keras(model: Any, images: Any, labels: Any) -> Made:
    tx = optax.sgd(1e-2, momentum=0.9)
    trained = [v.value for v in model.trainable_variables]
    fixed = [v.value for v in model.non_trainable_variables]

    def loss(trained: Any, fixed: Any, images: Any, labels: Any) -> Any:
        probabilities, fixed = model.stateless_call(trained, fixed, images, training=True)
        logits = jnp.log(probabilities + 1e-7)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), fixed

    def step(trained: Any, fixed: Any, opt: Any, images: Any, labels: Any) -> Any:
        (value, fixed), grads = jax.value_and_grad(loss, has_aux=True)(trained, fixed, images, labels)
        updates, opt = tx.update(grads, opt, trained)
        return optax.apply_updates(trained, updates), fixed, opt, value

    return Made(step, (trained, fixed, tx.init(trained)), (images, labels))


def _keras_hub(model: Any, inputs: Any, loss_of: Any) -> Made:
    """The train step of a model of keras-hub: a loss of what it returns, momentum of optax."""
    tx = plain()
    trained = [v.value for v in model.trainable_variables]
    fixed = [v.value for v in model.non_trainable_variables]

    def loss(trained: Any, fixed: Any, inputs: Any) -> Any:
        found, fixed = model.stateless_call(trained, fixed, inputs, training=True)
        return loss_of(found, inputs), fixed

    def step(trained: Any, fixed: Any, opt: Any, inputs: Any) -> Any:
        (value, fixed), grads = jax.value_and_grad(loss, has_aux=True)(trained, fixed, inputs)
        updates, opt = tx.update(grads, opt, trained)
        return optax.apply_updates(trained, updates), fixed, opt, value

    return Made(step, (trained, fixed, warm(tx.init(trained))), (inputs,))


def _next_token(hidden: Any, inputs: Any) -> Any:
    """A head of a fixed projection: backbones of keras-hub return hidden states."""
    head = jnp.cos(jnp.arange(hidden.shape[-1] * 128.0).reshape(hidden.shape[-1], 128))
    return cross_entropy((hidden @ head)[:, :-1], inputs["token_ids"][:, 1:])


def _tokens() -> dict[str, jax.Array]:
    return {"token_ids": ids(128, 8, 16), "padding_mask": jnp.ones((8, 16), jnp.int32)}


def _llama(name: str) -> Any:
    import keras_hub

    return keras_hub.models.LlamaBackbone(
        vocabulary_size=128, num_layers=1, num_query_heads=8, hidden_dim=32, intermediate_dim=64,
        num_key_value_heads=4, name=name,
    )  # fmt: skip


@program("keras-hub", "keras", "optax", rows=("inputs",))
def keras_hub_llama() -> Made:
    """keras-hub Llama: a train step of its backbone."""
    return _keras_hub(_llama("llama"), _tokens(), _next_token)


@program("keras-hub", "keras", "optax", rows=("inputs",))
def keras_hub_mixtral() -> Made:
    """keras-hub Mixtral: 4 experts, 2 for each token, sliding windows."""
    import keras_hub

    backbone = keras_hub.models.MixtralBackbone(
        vocabulary_size=128, num_layers=1, num_query_heads=8, hidden_dim=32, intermediate_dim=64,
        num_key_value_heads=4, num_experts=4, top_k=2, sliding_window=8,
    )  # fmt: skip
    return _keras_hub(backbone, _tokens(), _next_token)


@program("keras-hub", "keras", "optax", rows=("inputs",))
def keras_hub_vit() -> Made:
    """keras-hub ViT: patches of images, a class token, encoder layers."""
    import keras_hub

    backbone = keras_hub.models.ViTBackbone(
        image_shape=(16, 16, 3), patch_size=4, num_layers=1, num_heads=4, hidden_dim=32, mlp_dim=64
    )
    return _keras_hub(backbone, f32(8, 16, 16, 3), lambda hidden, _: jnp.square(hidden[:, 0] - 0.5).mean())


@program("keras-hub", "keras", rows=("tokens",))
def keras_hub_decode() -> Made:
    """keras-hub Llama: call_with_cache, greedy, one token a step."""
    import keras
    import keras_hub

    model = keras_hub.models.LlamaCausalLM(backbone=_llama("decoded"), preprocessor=None)
    weights = [v.value for v in model.variables]

    def step(cache: Any, tokens: Any, at: Any, weights: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(model.variables, weights, strict=True))):
            logits, _, cache = model.call_with_cache(tokens, cache, at)
        return cache, jnp.argmax(logits, -1).astype(jnp.int32), at + 1, logits

    carry = {"out/0": "cache", "out/1": "tokens", "out/2": "at"}  # all of it single arrays, which nothing tells
    return Made(step, (jnp.zeros((8, 1, 2, 16, 4, 4)), ids(128, 8, 1), jnp.int32(0)), (weights,), carry)
