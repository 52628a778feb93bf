"""haiku, with optax."""

from typing import Any

import jax
import optax

from programs.registry import Made, f32, ids, program, warm


@program("dm-haiku", "optax", rows=("images", "labels"))
def haiku_resnet18() -> Made:
    """haiku.nets.ResNet18 with batch norm state, trained by optax.adamw."""
    import haiku as hk

    net = hk.transform_with_state(lambda x: hk.nets.ResNet18(8, resnet_v2=True)(x, is_training=True))
    images, labels = f32(16, 32, 32, 3), ids(8, 16)
    params, state = jax.jit(net.init)(jax.random.key(0), images)
    tx = optax.adamw(1e-3)

    def loss(params: Any, state: Any, images: Any, labels: Any) -> Any:
        logits, state = net.apply(params, state, None, images)
        targets = optax.smooth_labels(jax.nn.one_hot(labels, 8), 0.1)
        return optax.softmax_cross_entropy(logits, targets).mean(), state

    def step(params: Any, state: Any, opt: Any, images: Any, labels: Any) -> Any:
        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(params, state, images, labels)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), state, opt, value

    return Made(step, (params, state, warm(tx.init(params))), (images, labels))


@program("dm-haiku", "optax")
def haiku_lstm() -> Made:
    """A language model from haiku.Embed, haiku.LSTM under dynamic_unroll, and haiku.Linear."""
    import haiku as hk

    def forward(tokens: Any) -> Any:
        core = hk.LSTM(64)
        inputs = hk.Embed(96, 32)(tokens)
        outputs, _ = hk.dynamic_unroll(core, inputs, core.initial_state(tokens.shape[1]))
        return hk.Linear(96)(outputs)

    net = hk.without_apply_rng(hk.transform(forward))
    tokens = ids(96, 12, 16)
    params = jax.jit(net.init)(jax.random.key(0), tokens)

    def step(params: Any, tokens: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = net.apply(params, tokens[:-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[1:]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        clip = optax.clip_by_global_norm(1.0)
        grads, _ = clip.update(grads, clip.init(params))
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return Made(step, (params,), (tokens,))
