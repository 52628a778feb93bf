"""Steps that change modules of flax NNX in place: planned, they leave in the caller's objects what `nnx.jit` leaves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import autoshard
from autoshard.errors import InputError

nnx = pytest.importorskip("flax.nnx", reason="the steps are of flax NNX, which is not installed")

ASKED = {"mesh": {"data": 2, "model": 4}, "hardware": "cpu_sim"}
OPTIMIZER = optax.sgd(0.1, momentum=0.9)


class Net(nnx.Module):
    def __init__(self, rngs: Any) -> None:
        self.up = nnx.Linear(16, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.down = nnx.Linear(64, 16, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.down(self.drop(nnx.relu(self.norm(self.up(x)))))


def made() -> tuple[Any, Any]:
    model = Net(nnx.Rngs(0))
    return model, nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)


def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    loss, gradients = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
    optimizer.update(model, gradients)
    return loss


def batch() -> tuple[Any, Any]:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(32, 16)), jnp.float32)
    return x, jnp.sin(x)


def trained(run: Any) -> tuple[list[float], Any]:
    """The losses of three steps, and the state of model and optimizer after them."""
    model, optimizer = made()
    losses = [float(run(model, optimizer, *batch())) for _ in range(3)]
    return losses, nnx.state((model, optimizer))


def same(one: Any, other: Any) -> bool:
    leaves = zip(jax.tree.leaves(nnx.to_pure_dict(one)), jax.tree.leaves(nnx.to_pure_dict(other)), strict=True)
    return all(
        np.allclose(jax.random.key_data(a), jax.random.key_data(b))
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
        else np.allclose(a, b, atol=1e-5)
        for a, b in leaves
    )


@pytest.fixture(scope="module")
def by_nnx() -> tuple[list[float], Any]:
    return trained(nnx.jit(step))


@pytest.mark.parametrize("options", [{}, {"donate_argnums": (0, 1)}], ids=["kept", "donated"])
def test_a_step_that_returns_its_loss_only_trains_as_nnx_jit_does(options: Any, by_nnx: Any) -> None:
    losses, state = trained(autoshard.jit(step, keep=False, **ASKED, **options))
    assert np.allclose(losses, by_nnx[0], atol=1e-5)
    assert same(state, by_nnx[1])


def test_the_jitted_function_of_a_plan_trains_the_objects_that_it_is_given(by_nnx: Any) -> None:
    plan = autoshard.plan(step, *nnx.eval_shape(made), *batch(), **ASKED)
    losses, state = trained(plan.jit())
    assert np.allclose(losses, by_nnx[0], atol=1e-5)
    assert same(state, by_nnx[1])


@pytest.fixture(scope="module")
def plan() -> Any:
    return autoshard.plan(step, *made(), *batch(), **ASKED)


def test_what_is_changed_is_carried_under_the_path_of_its_argument(plan: Any) -> None:
    assert plan["out/updated/model/up/kernel/value"] == plan["model/up/kernel/value"]


def test_a_note_says_which_arguments_are_changed(plan: Any) -> None:
    assert plan.notes[0].startswith("the function changes model and optimizer in place")


def test_a_plan_of_it_verifies(plan: Any) -> None:
    assert plan.verify(step, *made(), *batch(), **ASKED).ok


def test_a_loop_is_planned_once_and_its_state_stays_on_the_mesh() -> None:
    run = autoshard.jit(step, keep=False, **ASKED)
    model, optimizer = made()
    for _ in range(2):
        run(model, optimizer, *batch())
        assert all(len(x.sharding.device_set) == 8 for x in jax.tree.leaves((model, optimizer)))
    assert len(run._ready) == 1


def test_random_streams_go_on_from_call_to_call() -> None:
    draw = autoshard.jit(lambda rngs: jax.random.normal(rngs.params(), (8,)), keep=False, **ASKED)
    planned, alone = nnx.Rngs(0), nnx.Rngs(0)
    for _ in range(2):
        assert np.array_equal(draw(planned), jax.random.normal(alone.params(), (8,)))


def test_a_module_that_is_changed_and_returned_has_no_further_outputs() -> None:
    def shifted(model: Any, x: Any) -> Any:
        model.up.bias[...] += 1
        return model, model.up(x).sum()

    model, _ = made()
    run = autoshard.jit(shifted, keep=False, **ASKED)
    returned, _ = run(model, batch()[0])
    assert not any("updated" in name for name in run.plan.program.output_names)
    assert returned.up.bias[0] == model.up.bias[0] == 1


def test_a_variable_in_two_places_is_refused_where_it_is_changed() -> None:
    model, _ = made()
    model.down.bias = model.norm.bias = nnx.Param(jnp.zeros(16))

    def count(model: Any) -> Any:
        model.up.bias[...] += 1

    with pytest.raises(
        InputError, match=r"down\.bias and model\.norm\.bias are one variable, which the function changes"
    ):
        autoshard.jit(count, keep=False, **ASKED)(model)


def test_an_attribute_that_is_no_array_is_told_where_it_is_changed() -> None:
    def measured(model: Any, x: Any) -> Any:
        model.train()
        model.seen = True
        return model.up(x).sum()

    with pytest.warns(UserWarning, match="changes an attribute of model that is no array in place"):
        autoshard.jit(measured, keep=False, **ASKED)(made()[0], batch()[0])


def test_a_state_that_is_merged_inside_stays_as_it_was() -> None:
    graph, state = nnx.split(made())

    def next_state(state: Any, x: Any, y: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        loss = step(model, optimizer, x, y)
        return nnx.state((model, optimizer)), loss

    before = [np.asarray(x) for x in jax.tree.leaves(nnx.state(state, nnx.Param))]
    after, _ = autoshard.jit(next_state, keep=False, **ASKED)(state, *batch())
    assert all(np.array_equal(a, b) for a, b in zip(before, jax.tree.leaves(nnx.state(state, nnx.Param)), strict=True))
    assert not same(state, after)


def test_a_module_that_is_planned_itself_is_told_where_it_was_trained_since() -> None:
    model: Any = nnx.Linear(16, 16, rngs=nnx.Rngs(0))
    run: Any = autoshard.jit(model, keep=False, **ASKED)
    x, _ = batch()
    assert np.allclose(run(x), model(x), atol=1e-5)
    model.kernel[...] = jnp.zeros((16, 16))
    with pytest.raises(InputError, match=r"reads the array self\.kernel.*take it as an argument of its own"):
        run(x)


COUNTER = nnx.Variable(jnp.int32(0))


def count(x: Any) -> Any:
    COUNTER[...] += 1
    return COUNTER[...] + x


NORM: Any = nnx.BatchNorm(16, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("run", [NORM, count])
def test_an_object_that_is_changed_and_is_no_argument_is_refused(run: Any) -> None:
    planned: Any = autoshard.jit(run, keep=False, **ASKED)
    with pytest.raises(InputError, match=r"changes an object of flax NNX that is none of its arguments"):
        planned(jnp.ones((32, 16)))
