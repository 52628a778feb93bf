"""flax NNX: modules split into their graph and their state, as its guides do."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from programs.registry import Made, cross_entropy, f32, ids, program


def _transformer(**words: Any) -> Any:
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=32, rngs=rngs, **words)
            self.first, self.second = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(64, 32, rngs=rngs)
            self.norms = nnx.List([nnx.RMSNorm(32, rngs=rngs) for _ in range(2)])
            self.dropout = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x: Any, mask: Any = None) -> Any:
            x = x + self.attention(self.norms[0](x), mask=mask)
            return x + self.dropout(self.second(nnx.gelu(self.first(self.norms[1](x)))))

    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.embed = nnx.Embed(96, 32, rngs=rngs)
            self.blocks = nnx.List([Block(rngs) for _ in range(2)])
            self.head = nnx.Linear(32, 96, rngs=rngs)

        def __call__(self, tokens: Any, mask: Any = None) -> Any:
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x, mask)
            return self.head(x)

    return Model(nnx.Rngs(0, dropout=1))


@program("flax", "optax", rows=("tokens",))
def nnx_transformer() -> Made:
    """flax NNX: MultiHeadAttention, RMSNorm, Dropout with its stream of keys, nnx.Optimizer, all state returned."""
    from flax import nnx

    model = _transformer(decode=False)
    model.train()
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def step(state: Any, tokens: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)

        def loss(model: Any) -> Any:
            return cross_entropy(model(tokens, nnx.make_causal_mask(tokens))[:, :-1], tokens[:, 1:])

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), value

    def warmed(path: Any, x: Any) -> Any:
        moment = any("opt_state" in str(part) for part in path) and jnp.issubdtype(x.dtype, jnp.floating)
        return jnp.full(x.shape, 0.01, x.dtype) if moment else x

    return Made(step, (jax.tree_util.tree_map_with_path(warmed, state),), (ids(96, 8, 16),))


@program("flax", rows=("tokens",))
def nnx_decode() -> Made:
    """flax NNX: MultiHeadAttention with decode=True, one token a step, its cache in the state."""
    from flax import nnx

    model = _transformer(decode=True)
    model.eval()
    for block in model.blocks:
        block.attention.init_cache((8, 16, 32))
    graph, cache, rest = nnx.split(model, nnx.Cache, ...)

    def step(cache: Any, tokens: Any, rest: Any) -> Any:
        model = nnx.merge(graph, cache, rest)
        logits = model(tokens)
        return nnx.state(model, nnx.Cache), jnp.argmax(logits, -1).astype(jnp.int32), logits

    return Made(step, (cache, ids(96, 8, 1)), (rest,))


@program("flax", "optax", rows=("images", "labels"))
def nnx_cnn() -> Made:
    """flax NNX: convolutions, BatchNorm with running averages, max pooling, SGD with momentum."""
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first = nnx.Conv(3, 16, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(16, rngs=rngs)
            self.second = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
            self.head = nnx.Linear(32, 8, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = nnx.relu(self.norm(self.first(x)))
            x = nnx.max_pool(nnx.relu(self.second(x)), (2, 2), (2, 2))
            return self.head(x.mean((1, 2)))

    model = Model(nnx.Rngs(0))
    model.train()
    optimizer = nnx.Optimizer(model, optax.sgd(0.05, momentum=0.9), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def step(state: Any, images: Any, labels: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        value, grads = nnx.value_and_grad(lambda m: cross_entropy(m(images), labels))(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), value

    return Made(step, (state,), (f32(16, 16, 16, 3), ids(8, 16)))


@program("flax", "optax", rows=("x",))
def nnx_scanned_layers() -> Made:
    """flax NNX: layers stacked by nnx.vmap and run by nnx.scan, with nnx.remat."""
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.dense = nnx.Linear(32, 32, rngs=rngs)
            self.norm = nnx.LayerNorm(32, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return x + nnx.tanh(self.dense(self.norm(x)))

    @nnx.split_rngs(splits=4)
    @nnx.vmap(in_axes=(0,), out_axes=0)
    def stacked(rngs: Any) -> Any:
        return Layer(rngs)

    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    @nnx.remat
    def forward(x: Any, layer: Any) -> Any:
        return layer(x)

    graph, params = nnx.split(stacked(nnx.Rngs(0)))

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return optax.l2_loss(forward(x, nnx.merge(graph, params)), y).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return Made(step, (params,), (f32(16, 32), f32(16, 32)))
