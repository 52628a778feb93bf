"""flax.linen, with optax."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from programs.registry import Made, cross_entropy, f32, ids, program, trained, warm


@program("flax", "optax", rows=("tokens",))
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

    model, tokens = Model(), ids(96, 8, 16)
    variables = jax.jit(model.init)({"params": jax.random.key(0), "dropout": jax.random.key(1)}, tokens)
    tx = optax.adamw(1e-3)

    def step(params: Any, opt: Any, key: Any, tokens: Any) -> Any:
        key, own = jax.random.split(key)

        def loss(params: Any) -> Any:
            logits = model.apply(params, tokens, rngs={"dropout": own})
            return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, key, value

    return Made(step, (variables, warm(tx.init(variables)), jax.random.key(2)), (tokens,))


@program("flax", "optax", rows=("images", "labels"))
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

    model, images, labels = Model(), f32(16, 16, 16, 3), ids(8, 16)
    params = jax.jit(model.init)(jax.random.key(0), images)

    def step(params: Any, images: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = model.apply(params, images)
            return optax.sigmoid_focal_loss(logits, jax.nn.one_hot(labels, 8), gamma=2.0).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return Made(step, (params,), (images, labels))


@program("flax", rows=("tokens",))
def linen_decode() -> Made:
    """flax.linen: MultiHeadDotProductAttention with decode=True, one token a step, the collection "cache" as state."""
    from flax import linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            embed = nn.Embed(96, 32)
            x = embed(tokens)
            for _ in range(2):
                h = nn.LayerNorm()(x)
                x = x + nn.MultiHeadDotProductAttention(num_heads=4, decode=True)(h, h)
                x = x + nn.Dense(32)(nn.silu(nn.Dense(64)(nn.LayerNorm()(x))))
            return embed.attend(x)

    model = Model()
    variables = jax.jit(model.init)(jax.random.key(0), ids(96, 8, 16))
    cache = jax.tree.map(jnp.zeros_like, variables["cache"])

    def step(cache: Any, tokens: Any, params: Any) -> Any:
        logits, changed = model.apply({"params": params, "cache": cache}, tokens, mutable=["cache"])
        return changed["cache"], jnp.argmax(logits, -1).astype(jnp.int32), logits

    return Made(step, (cache, ids(96, 8, 1)), (variables["params"],))


@program("flax", "optax", rows=("batch/0",))
def linen_scanned_layers() -> Made:
    """flax.linen: layers in nn.scan with nn.remat, DenseGeneral, a causal convolution, adafactor with a schedule."""
    from flax import linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: Any, _: Any) -> Any:
            h = nn.RMSNorm()(x)
            h = nn.Conv(32, (4,), padding="CAUSAL", feature_group_count=32)(h)
            h = nn.DenseGeneral((4, 16))(h)
            return x + nn.DenseGeneral(32, axis=(-2, -1))(nn.swish(h)), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(96, 32)(tokens)
            layers = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
            x, _ = layers()(x, None)
            return nn.Dense(96)(x)

    model, tokens = Model(), ids(96, 8, 16)
    params = jax.jit(model.init)(jax.random.key(0), tokens)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adafactor(optax.cosine_decay_schedule(1e-2, 100)))

    def loss(params: Any, tokens: Any) -> Any:
        return cross_entropy(model.apply(params, tokens)[:, :-1], tokens[:, 1:])

    return Made(trained(loss, tx), (params, warm(tx.init(params))), (tokens,))
