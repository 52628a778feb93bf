"""equinox, diffrax and what is built on them."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from programs.registry import Made, f32, ids, program


@program("equinox", "optax", rows=("x", "y"))
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

    return Made(step, (arrays,), (f32(32, 32), f32(32, 8)))


@program("equinox", "optax", rows=("x", "y"))
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

    return Made(step, (arrays,), (f32(16, 12, 32), ids(8, 16)))


@program("diffrax", "equinox", "optax", rows=("targets",))
def diffrax_neural_ode() -> Made:
    """diffrax: a neural ODE by Tsit5 with an adaptive step, differentiated through its checkpoints."""
    import diffrax
    import equinox as eqx

    field, static = eqx.partition(eqx.nn.MLP(8, 8, 32, 1, activation=jnp.tanh, key=jax.random.key(0)), eqx.is_array)
    times = jnp.linspace(0.0, 1.0, 4)

    def step(field: Any, starts: Any, targets: Any) -> Any:
        def loss(field: Any) -> Any:
            def solved(start: Any) -> Any:
                return diffrax.diffeqsolve(
                    diffrax.ODETerm(lambda t, y, f: eqx.combine(f, static)(y)), diffrax.Tsit5(), 0.0, 1.0, 0.1, start,
                    args=field, saveat=diffrax.SaveAt(ts=times), max_steps=16,
                    stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
                ).ys  # fmt: skip

            return jnp.square(jax.vmap(solved)(starts) - targets).mean()

        value, grads = jax.value_and_grad(loss)(field)
        return jax.tree.map(lambda p, g: p - 0.1 * g, field, grads), value

    return Made(step, (field,), (f32(8, 8), f32(8, 4, 8)))


@program("diffrax", "equinox", rows=("starts",))
def diffrax_sde() -> Made:
    """diffrax: a stochastic equation by Euler-Heun along a virtual Brownian tree, on from where it was."""
    import diffrax

    def step(state: Any, at: Any, drift: Any, keys: Any) -> Any:
        def solved(start: Any, key: Any) -> Any:
            noise = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(8,), key=key)
            terms = diffrax.MultiTerm(
                diffrax.ODETerm(lambda t, y, w: jnp.tanh(y @ w)),
                diffrax.ControlTerm(lambda t, y, w: lineax.DiagonalLinearOperator(0.1 * jnp.cos(y)), noise),
            )
            done = diffrax.diffeqsolve(terms, diffrax.EulerHeun(), 0.0, 1.0, 0.125, start, args=drift, max_steps=16)
            return done.ys[-1]

        import lineax

        return {"y": jax.vmap(solved)(state["y"], keys)}, at + 1

    return Made(step, ({"y": f32(8, 8)}, jnp.int32(0)), (f32(8, 8) / 4, jax.random.split(jax.random.key(0), 8)))


@program("equinox", "optax", rows=("images", "labels"))
def equinox_cnn() -> Made:
    """equinox: convolutions and BatchNorm with eqx.nn.State under vmap with a named axis."""
    import equinox as eqx

    class Model(eqx.Module):
        first: eqx.nn.Conv2d
        norm: eqx.nn.BatchNorm
        pool: eqx.nn.AvgPool2d
        head: eqx.nn.Linear

        def __init__(self, key: Any) -> None:
            a, b = jax.random.split(key)
            self.first = eqx.nn.Conv2d(3, 16, 3, padding=1, key=a)
            self.norm = eqx.nn.BatchNorm(16, axis_name="batch", mode="batch")
            self.pool = eqx.nn.AvgPool2d(4, 4)
            self.head = eqx.nn.Linear(16 * 4, 8, key=b)

        def __call__(self, x: Any, state: Any) -> Any:
            x, state = self.norm(self.first(x), state)
            return self.head(self.pool(jax.nn.relu(x)).ravel()), state

    model, norms = eqx.nn.make_with_state(Model)(jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_inexact_array)

    def step(arrays: Any, norms: Any, images: Any, labels: Any) -> Any:
        def loss(arrays: Any) -> Any:
            model = eqx.combine(arrays, static)
            logits, changed = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(images, norms)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), changed

        (value, norms), grads = jax.value_and_grad(loss, has_aux=True)(arrays)
        return jax.tree.map(lambda p, g: p - 0.1 * g, arrays, grads), norms, value

    return Made(step, (arrays, norms), (f32(16, 3, 8, 8), ids(8, 16)))
