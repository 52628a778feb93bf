"""Train steps of models that others published, as they are: nothing in them knows of sharding.

Each function returns ``(step, arguments)``. Packages are imported inside, so that one can be run without the others.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

RNG = np.random.default_rng(0)
Made = tuple[Callable[..., Any], tuple[Any, ...]]


def _f32(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def _ids(high: int, *shape: int) -> jax.Array:
    return jnp.asarray(RNG.integers(0, high, shape), jnp.int32)


def keras_mobilenet_v3() -> Made:
    """keras.applications.MobileNetV3Small: depthwise convolutions, squeeze and excite, batch norm, hard swish."""
    import keras

    model = keras.applications.MobileNetV3Small(
        weights=None, input_shape=(32, 32, 3), classes=8, include_preprocessing=False, dropout_rate=0.0
    )
    return _keras(model, _f32(16, 32, 32, 3), _ids(8, 16))


def keras_resnet50() -> Made:
    """keras.applications.ResNet50 with its loss from optax."""
    import keras

    model = keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=8)
    return _keras(model, _f32(16, 32, 32, 3), _ids(8, 16))


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

    return step, (trained, fixed, tx.init(trained), images, labels)


def haiku_resnet18() -> Made:
    """haiku.nets.ResNet18 with batch norm state, trained by optax.adamw."""
    import haiku as hk

    net = hk.transform_with_state(lambda x: hk.nets.ResNet18(8, resnet_v2=True)(x, is_training=True))
    images, labels = _f32(16, 32, 32, 3), _ids(8, 16)
    params, state = net.init(jax.random.key(0), images)
    tx = optax.adamw(1e-3)

    def loss(params: Any, state: Any, images: Any, labels: Any) -> Any:
        logits, state = net.apply(params, state, None, images)
        targets = optax.smooth_labels(jax.nn.one_hot(labels, 8), 0.1)
        return optax.softmax_cross_entropy(logits, targets).mean(), state

    def step(params: Any, state: Any, opt: Any, images: Any, labels: Any) -> Any:
        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(params, state, images, labels)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), state, opt, value

    return step, (params, state, _warm(tx.init(params)), images, labels)


def haiku_lstm() -> Made:
    """A language model from haiku.Embed, haiku.LSTM under dynamic_unroll, and haiku.Linear."""
    import haiku as hk

    def forward(tokens: Any) -> Any:
        core = hk.LSTM(64)
        inputs = hk.Embed(96, 32)(tokens)
        outputs, _ = hk.dynamic_unroll(core, inputs, core.initial_state(tokens.shape[1]))
        return hk.Linear(96)(outputs)

    net = hk.without_apply_rng(hk.transform(forward))
    tokens = _ids(96, 12, 16)
    params = net.init(jax.random.key(0), tokens)

    def step(params: Any, tokens: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = net.apply(params, tokens[:-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[1:]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        clip = optax.clip_by_global_norm(1.0)
        grads, _ = clip.update(grads, clip.init(params))
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step, (params, tokens)


def flax_transformer() -> Made:
    """flax.linen: Embed, LayerNorm, MultiHeadDotProductAttention with a causal mask, Dropout with its key, Dense."""
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any, mask: Any) -> Any:
            h = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(h, h, mask=mask)
            h = nn.Dense(128)(nn.LayerNorm()(x))
            return x + nn.Dropout(0.1, deterministic=False)(nn.Dense(64)(nn.gelu(h)))

    class Model(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            embed = nn.Embed(96, 64)
            x, mask = embed(tokens), nn.make_causal_mask(tokens)
            for _ in range(2):
                x = nn.remat(Block)()(x, mask)
            return embed.attend(nn.LayerNorm()(x))

    model, tokens = Model(), _ids(96, 8, 16)
    variables = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, tokens)
    tx = optax.adamw(1e-3)

    def step(params: Any, opt: Any, tokens: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = model.apply(params, tokens, rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, value

    return step, (variables, _warm(tx.init(variables)), tokens, jax.random.key(2))


def flax_cnn_lstm() -> Made:
    """flax.linen: Conv, GroupNorm, avg_pool, and an OptimizedLSTMCell run by nn.RNN over the rows of images."""
    from flax import linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.GroupNorm(4)(nn.Conv(16, (3, 3))(x)))
            x = nn.avg_pool(x, (2, 2), (2, 2))
            x = nn.RNN(nn.OptimizedLSTMCell(32))(x.reshape(x.shape[0], x.shape[1], -1))
            return nn.Dense(8)(x[:, -1])

    model, images, labels = Model(), _f32(16, 16, 16, 3), _ids(8, 16)
    params = model.init(jax.random.key(0), images)

    def step(params: Any, images: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = model.apply(params, images)
            return optax.sigmoid_focal_loss(logits, jax.nn.one_hot(labels, 8), gamma=2.0).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step, (params, images, labels)


def equinox_mlp() -> Made:
    """equinox.nn.MLP under vmap, differentiated by eqx.filter_value_and_grad."""
    import equinox as eqx

    model = eqx.nn.MLP(32, 8, 128, 3, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)

    def step(arrays: Any, x: Any, y: Any) -> Any:
        @eqx.filter_value_and_grad
        def loss(model: Any) -> Any:
            return optax.huber_loss(jax.vmap(model)(x), y).mean()

        value, grads = loss(eqx.combine(arrays, static))
        return jax.tree.map(lambda p, g: p - 0.1 * g, arrays, eqx.filter(grads, eqx.is_array)), value

    return step, (arrays, _f32(32, 32), _f32(32, 8))


def equinox_attention_gru() -> Made:
    """equinox.nn.MultiheadAttention and LayerNorm, then a GRUCell in lax.scan, for one sequence under vmap."""
    import equinox as eqx

    class Model(eqx.Module):
        attention: eqx.nn.MultiheadAttention
        norm: eqx.nn.LayerNorm
        cell: eqx.nn.GRUCell
        head: eqx.nn.Linear

        def __init__(self, key: Any) -> None:
            a, b, c = jax.random.split(key, 3)
            self.attention = eqx.nn.MultiheadAttention(4, 32, key=a)
            self.norm = eqx.nn.LayerNorm(32)
            self.cell = eqx.nn.GRUCell(32, 32, key=b)
            self.head = eqx.nn.Linear(32, 8, key=c)

        def __call__(self, x: Any) -> Any:
            x = jax.vmap(self.norm)(x + self.attention(x, x, x))
            last, _ = jax.lax.scan(lambda h, row: (self.cell(row, h), None), jnp.zeros(32), x)
            return self.head(last)

    arrays, static = eqx.partition(Model(jax.random.key(0)), eqx.is_array)

    def step(arrays: Any, x: Any, y: Any) -> Any:
        def loss(arrays: Any) -> Any:
            logits = jax.vmap(eqx.combine(arrays, static))(x)
            return optax.losses.poly_loss_cross_entropy(logits, jax.nn.one_hot(y, 8)).mean()

        value, grads = jax.value_and_grad(loss)(arrays)
        return jax.tree.map(lambda p, g: p - 0.1 * g, arrays, grads), value

    return step, (arrays, _f32(16, 12, 32), _ids(8, 16))


def jraph_graph_network() -> Made:
    """jraph.GraphConvolution and GAT on one graph: gathers and segment sums over edges."""
    import jraph

    senders, receivers = _ids(24, 64), _ids(24, 64)
    first, second, attention = _f32(16, 32) / 4, _f32(32, 8) / 5, _f32(64, 1) / 8

    def step(weights: Any, nodes: Any, senders: Any, receivers: Any, labels: Any) -> Any:
        def loss(weights: Any) -> Any:
            graph = jraph.GraphsTuple(nodes, None, receivers, senders, None, jnp.array([24]), jnp.array([64]))
            graph = jraph.GraphConvolution(lambda n: jnp.tanh(n @ weights[0]), symmetric_normalization=True)(graph)
            layer = jraph.GAT(
                lambda n: n,
                lambda s, r, e: jnp.concatenate([s, r], -1) @ weights[2],
                node_update_fn=lambda n: n @ weights[1],
            )
            logits = layer(graph).nodes
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, grads = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda p, g: p - 0.1 * g, weights, grads), value

    return step, ((first, second, attention), _f32(24, 16), senders, receivers, _ids(8, 24))


def optax_losses() -> Made:
    """CTC loss (a scan with dynamic updates), cosine distance, KL divergence and a hinge, with their gradients."""
    logits, labels = _f32(4, 12, 16), _ids(15, 4, 5) + 1

    def step(logits: Any, labels: Any, x: Any) -> Any:
        def loss(logits: Any, x: Any) -> Any:
            pad = jnp.zeros(logits.shape[:2])
            ctc = optax.ctc_loss(logits, pad, labels, jnp.zeros(labels.shape)).mean()
            cosine = optax.cosine_distance(x, jnp.roll(x, 1, axis=0), epsilon=1e-6).mean()
            divergence = optax.kl_divergence(jax.nn.log_softmax(x), jax.nn.softmax(x[::-1])).mean()
            return ctc + cosine + divergence + optax.hinge_loss(x, jnp.sign(x + 0.5)).mean()

        return jax.value_and_grad(loss, argnums=(0, 1))(logits, x)

    return step, (logits, labels, _f32(8, 24))


def _warm(state: Any) -> Any:
    """Optimizer moments that are not zero: from zero, Adam's first step is the sign of the gradient, decided by
    rounding where it vanishes.
    """
    return jax.tree.map(
        lambda x: x if not jnp.issubdtype(x.dtype, jnp.floating) else jnp.full(x.shape, 0.01, x.dtype), state
    )


PROGRAMS: dict[str, tuple[str, Callable[[], Made], tuple[str, ...]]] = {
    f.__name__: (package, f, rows)
    for package, f, rows in (
        ("keras", keras_mobilenet_v3, ("images", "labels")),
        ("keras", keras_resnet50, ("images", "labels")),
        ("dm-haiku", haiku_resnet18, ("images", "labels")),
        ("dm-haiku", haiku_lstm, ()),
        ("flax", flax_transformer, ("tokens",)),
        ("flax", flax_cnn_lstm, ("images", "labels")),
        ("equinox", equinox_mlp, ("x", "y")),
        ("equinox", equinox_attention_gru, ("x", "y")),
        ("jraph", jraph_graph_network, ("senders", "receivers")),
        ("optax", optax_losses, ("x",)),
    )
}
"""Name -> package, how it is made, and the arguments whose rows are pinned to the axis "data"."""
