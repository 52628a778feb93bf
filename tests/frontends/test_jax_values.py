"""Program and jax_ops together hold all that is needed to compute what the function computes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from autoshard.errors import InputError
from autoshard.frontends.jax.function import trace
from autoshard.frontends.jax.interpret import evaluate
from autoshard.models import build

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)


def test_custom_derivatives_and_calls_are_inlined(same_values):
    @jax.custom_vjp
    def clip_gradient(x):
        return jnp.sin(x)

    clip_gradient.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.clip(g, -1, 1) * jnp.cos(x),))

    @jax.custom_jvp
    def log1pexp(x):
        return jnp.log(1.0 + jnp.exp(x))

    log1pexp.defjvp(lambda p, t: (log1pexp(p[0]), jax.nn.sigmoid(p[0]) * t[0]))

    def loss(x):
        return jnp.sum(jax.jit(clip_gradient)(x) * log1pexp(x))

    for f in (loss, jax.grad(loss)):
        kinds = {op.kind for op in same_values(f, X).program.ops.values()}
        assert not kinds & {"jit", "pjit", "custom_vjp_call", "custom_jvp_call", "closed_call"}


def test_mixture_of_experts_with_top_k_routing(same_values):
    def moe(params, x):
        weights, chosen = jax.lax.top_k(jax.nn.softmax(x @ params["router"]), 2)
        hot = jax.nn.one_hot(chosen, 4)  # (tokens, 2, experts)
        dispatched = jnp.einsum("tke,td->ekd", hot, x)
        y = jnp.einsum("ekd,edf->ekf", dispatched, params["w"])
        return jnp.mean(jnp.einsum("ekf,tke,tk->tf", y, hot, weights) ** 2)

    params = {
        "router": jax.ShapeDtypeStruct((8, 4), jnp.float32),
        "w": jax.ShapeDtypeStruct((4, 8, 8), jnp.float32),
    }
    kinds = {op.kind for op in same_values(jax.value_and_grad(moe), params, X).program.ops.values()}
    assert "top_k" in kinds


def test_an_adamw_step(same_values):
    optimizer = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100), weight_decay=0.1)

    def loss(params, batch):
        h = jax.nn.gelu(batch["x"] @ params["w1"] + params["b1"])
        logits = h @ params["w2"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

    def step(state, batch):
        value, grads = jax.value_and_grad(loss)(state["params"], batch)
        updates, opt = optimizer.update(grads, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, value

    params = {"w1": (8, 8), "b1": (8,), "w2": (8, 4)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in params.items()}
    # The optimizer state is real: random second moments would be negative.
    real_opt = optimizer.init(jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), params))
    traced = same_values(
        step,
        {"params": params, "opt": real_opt},
        {"x": X, "y": jax.ShapeDtypeStruct((4,), jnp.int32)},
        donate_argnums=0,
    )
    names = traced.program.input_names
    assert {"state/params/w1", "state/opt/0/mu/w1", "state/opt/0/count"} <= set(names)
    assert "out/0/opt/0/nu/w2" in traced.program.output_names
    assert {names[i].split("/")[0] for i in traced.program.donated} == {"state"}


def test_random_numbers_from_typed_keys(same_values):
    def f(key, x):
        next_key, now = jax.random.split(key)
        return next_key, x * jax.random.bernoulli(now, 0.5, x.shape) + jax.random.normal(now, x.shape)

    traced = same_values(f, jax.random.key(3), X)
    assert str(traced.program.type_of(traced.program.body.args[0])) == "key<fry>[]"


def test_linear_solves_and_sorting(same_values):
    def f(x):
        a = x @ x.T + jnp.eye(4)
        return jnp.linalg.solve(a, x), jnp.sort(x, axis=1), jnp.cumsum(x, axis=0), jnp.argmax(x, axis=1)

    same_values(f, X)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint32", "bool", "float8_e4m3fn", "int4"])
def test_literals_of_every_element_type(same_values, dtype):
    scalar = jnp.asarray(1, dtype)

    def f(x):
        return jnp.where(x, scalar, jnp.zeros_like(scalar)).astype(jnp.float32)

    same_values(f, jax.ShapeDtypeStruct((4,), jnp.bool_))


def test_infinite_and_nan_literals(same_values):
    def f(x):
        return jnp.max(jnp.where(x > 0, x, -jnp.inf)), jnp.where(x > 9, jnp.nan, x)

    first = same_values(f, X)
    assert trace(lambda *a: f(*a), X, argnames=("x",)).program.values == first.program.values


def test_outputs_may_be_inputs_constants_and_literals(same_values):
    table = np.arange(3.0, dtype=np.float32)
    traced = same_values(lambda x: (x, 2.0, table, x + 1, x), X)
    program = traced.program
    assert program.body.results[0] == program.body.results[4] == program.body.args[0]
    assert program.body.results[2] == program.body.args[1]


def test_gradients_of_integers_have_no_bits():
    f = jax.grad(lambda x, i: jnp.sum(x * i), argnums=(0, 1), allow_int=True)
    traced = trace(f, X, jax.ShapeDtypeStruct((8,), jnp.int32))
    assert str(traced.program.type_of(traced.program.body.results[1])) == "float0[8]"
    got = jax.jit(lambda *a: evaluate(traced, *a))(np.ones((4, 8), np.float32), np.arange(8))
    np.testing.assert_array_equal(got[0], np.broadcast_to(np.arange(8.0), (4, 8)))
    assert (got[1].shape, got[1].dtype) == ((8,), jax.dtypes.float0)


def test_library_functions_that_are_primitives_of_a_higher_level_in_some_versions(same_values):
    traced = same_values(lambda x: (jnp.searchsorted(x[0], x[1]), jax.scipy.linalg.expm(x @ x.T * 0.1)), X)
    assert not any(op.kind.startswith("call_") for op in traced.program.ops.values())


def test_vmap_and_weak_scalars(same_values):
    same_values(lambda x, s: jax.vmap(lambda r: jax.lax.fori_loop(0, 3, lambda i, y: y * s, r))(x), X, 1.5)


def test_evaluate_wants_as_many_arrays_as_the_program_takes():
    with pytest.raises(InputError, match="takes 1 arrays, 2 were given"):
        evaluate(trace(jnp.sin, X), 1, 2)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("transformer", {"layers": 2, "remat": "full", "d_model": 64, "d_ff": 128, "heads": 4, "vocab": 256}),
        pytest.param("transformer", {"layers": 2, "scan": False}, marks=pytest.mark.slow),
        pytest.param("mlp", {}, marks=pytest.mark.slow),
        pytest.param("moe", {"layers": 2}, marks=pytest.mark.slow),
        pytest.param("resnet", {}, marks=pytest.mark.slow),
    ],
)
def test_train_steps_of_the_model_library_compute_the_same(model, options):
    program = build(model, **options)
    traced = trace(program.step, *program.specs, argnames=program.argnames)
    args = (program.init(0), next(program.batches(0)))
    want = jax.tree.leaves(jax.jit(program.step)(*args))
    got = jax.jit(lambda leaves: evaluate(traced, *leaves))(jax.tree.leaves(args))
    for name, a, b in zip(traced.program.output_names, got, want, strict=True):
        # XLA fuses the two forms differently and the models compute in bfloat16 (8 bits of mantissa).
        np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-2, atol=2e-4, err_msg=name
        )
