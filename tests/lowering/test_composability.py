"""A lowered function is a JAX function: jitted again, differentiated, donated, compiled ahead, exported, kept."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import autoshard

MESH = {"data": 2, "model": 4}


@jax.custom_vjp
def clipped(x):
    """The identity, whose gradient is cut to [-0.01, 0.01]."""
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.01, 0.01),))


def forward(params, x, count):
    h = clipped(jax.nn.relu(x @ params["w1"] + params["b"]))
    y = jax.nn.softmax(h @ params["w2"], axis=-1)
    return {"y": y, "loss": (jnp.log(y + 1e-3) * x[:, :1]).sum() / count}


def arguments():
    random = np.random.default_rng(0)

    def normal(*shape):
        return random.normal(size=shape).astype(np.float32)

    x = normal(32, 16)
    x[0] = 0  # relu at exactly 0, where a maximum has another derivative
    params = {"b": np.zeros(64, np.float32), "w1": normal(16, 64), "w2": normal(64, 32)}
    return params, x, np.int32(3)


@pytest.fixture(scope="module")
def plan():
    pins = {"x": '[{"data"}, {}]', "params/w1": '[{}, {"model"}]', "params/w2": '[{"model"}, {}]'}
    pins |= {"out/y": '[{"data"}, {"model"}]'}
    return autoshard.plan(
        forward, *arguments(), mesh=MESH, hardware="cpu_sim",
        constraints=[autoshard.Pin(pattern, sharding) for pattern, sharding in pins.items()],
    )  # fmt: skip


def close(found, expected, rtol=2e-5):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * float(np.abs(theirs).max()))


def test_the_plan_communicates(plan):
    assert len(plan.lowered.planned) > 0


SLOW = [pytest.param(target, marks=pytest.mark.slow) for target in ("constraints", "shardings")]


@pytest.mark.parametrize("target", ["explicit", *SLOW])
def test_gradients_are_those_of_the_function(plan, target):
    lowered = plan.lower(target)

    def loss(f):
        return lambda params, x, n: f(params, x, n)["loss"]

    found = jax.jit(jax.value_and_grad(loss(lowered.fn), argnums=(0, 1)))(*arguments())
    close(found, jax.value_and_grad(loss(forward), argnums=(0, 1))(*arguments()))


def test_gradients_may_be_taken_of_the_jitted_function_and_outside_of_jit(plan):
    found = jax.grad(lambda params: plan.jit()(params, *arguments()[1:])["loss"])(arguments()[0])
    close(found, jax.grad(lambda params: forward(params, *arguments()[1:])["loss"])(arguments()[0]))


@pytest.mark.slow
def test_forward_and_second_derivatives_are_those_of_the_function():
    def f(x):
        return jnp.tanh(x @ x.T).sum()

    x = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32) / 4
    fn = autoshard.plan(f, x, mesh={"a": 8}, hardware="cpu_sim").lowered.fn
    close(jax.jvp(fn, (x,), (x,)), jax.jvp(f, (x,), (x,)))
    close(jax.jit(jax.hessian(fn))(x), jax.hessian(f)(x), rtol=1e-3)


def test_it_is_jitted_inside_of_the_users_jit_with_the_planned_collectives(plan):
    from autoshard.verify.runs.collectives import compare
    from autoshard.verify.runs.stablehlo import stablehlo_collectives

    @jax.jit
    def outer(params, x, n):
        return plan.lowered.fn(params, 2 * x, n), jax.tree.map(lambda y: 3 * y, plan.jit()(params, x, n))

    params, x, n = arguments()
    close(outer(params, x, n), (forward(params, 2 * x, n), jax.tree.map(lambda y: 3 * y, forward(params, x, n))))
    twice = [*plan.lowered.planned, *plan.lowered.planned]
    assert compare(twice, stablehlo_collectives(outer.lower(*arguments()).as_text()), plan.schedule.mesh) == []


def test_it_is_mapped_over_a_new_dimension(plan):
    params, x, n = arguments()
    found = jax.jit(jax.vmap(plan.lowered.fn, in_axes=(None, 0, None)))(params, np.stack([x, 2 * x]), n)
    close(found, jax.vmap(forward, in_axes=(None, 0, None))(params, np.stack([x, 2 * x]), n))


def test_donated_arguments_are_given_up():
    def update(state, x):
        return jax.tree.map(lambda s: s + x.sum(), state)

    state, x = {"a": np.ones((8, 8), np.float32)}, np.ones((8, 8), np.float32)
    plan = autoshard.plan(
        update, state, x, mesh={"d": 8}, hardware="cpu_sim", donate_argnums=(0,),
        constraints=[autoshard.Pin("state/a", '[{"d"}, {}]'), autoshard.Pin("out/a", '[{"d"}, {}]')],
    )  # fmt: skip
    placed = plan.place(state, x)
    out = plan.jit()(*placed)
    assert placed[0]["a"].is_deleted()
    assert not placed[1].is_deleted()
    close(out, {"a": np.full((8, 8), 65.0)})


def test_it_is_compiled_ahead_of_time_and_timed(plan):
    compiled = plan.jit().lower(*arguments()).compile()
    placed = plan.place(*arguments())
    began = time.perf_counter()
    found = jax.block_until_ready(compiled(*placed))
    assert 0 < time.perf_counter() - began < 60
    close(found, forward(*arguments()))
    assert compiled.input_shardings[0] == plan.in_shardings


def test_it_is_exported_and_loaded_again(plan):
    pytest.importorskip("flatbuffers", reason="jax.export writes files with flatbuffers")
    data = export.export(plan.jit())(*arguments()).serialize()
    loaded = export.deserialize(data)
    assert loaded.nr_devices == 8
    placed = plan.place(*arguments())
    found = jax.jit(loaded.call)(*placed)
    close(found, forward(*arguments()))
    mesh = jax.tree.leaves(plan.in_shardings)[0].mesh
    for sharding, wanted in zip(loaded.in_shardings_jax(mesh), jax.tree.leaves(plan.in_shardings), strict=True):
        assert sharding is not None or wanted.is_fully_replicated


def test_shardings_are_pytrees_that_checkpoints_are_kept_and_restored_with(plan, tmp_path):
    """As orbax does it: every shard to a file of its own, read again by the index that the sharding asks for."""
    state = plan.place(*arguments())
    leaves, tree = jax.tree.flatten(state)
    for number, x in enumerate(leaves):
        for shard in x.addressable_shards:
            if shard.replica_id == 0:
                start = "_".join(str(s.start or 0) for s in shard.index)
                np.save(tmp_path / f"{number}.{start}.npy", np.asarray(shard.data))

    def restored(number, spec, sharding):
        def read(index):
            start = "_".join(str(s.start or 0) for s in index)
            return np.load(tmp_path / f"{number}.{start}.npy")

        return jax.make_array_from_callback(spec.shape, sharding, read)

    wanted = jax.tree.leaves(plan.in_shardings)
    found = jax.tree.unflatten(tree, [restored(k, x, s) for k, (x, s) in enumerate(zip(leaves, wanted, strict=True))])
    assert [x.sharding for x in jax.tree.leaves(found)] == wanted
    close(plan.jit()(*found), forward(*arguments()))
    assert jax.tree.structure(plan.out_shardings) == jax.tree.structure(plan.jit()(*found))
