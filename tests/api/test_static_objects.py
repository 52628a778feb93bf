"""Methods that are planned: `self` is static; arrays in it are neither changed by a step nor looked up again."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard.errors import InputError

ASKED = {"mesh": {"data": 2, "model": 4}, "hardware": "cpu_sim"}
planned = functools.partial(autoshard.jit, keep=False, **ASKED)
X = np.ones((16, 32), np.float32)


class Trainer:
    def __init__(self, rate: float = 0.1) -> None:
        self.weights, self.rate, self.calls = {"w": jnp.ones((32, 32))}, rate, 0

    @planned
    def loss(self, x: Any) -> Any:
        return jnp.tanh(x @ self.weights["w"]).mean()

    @planned
    def step(self, x: Any) -> Any:
        self.weights = {"w": self.weights["w"] - self.rate * x.mean()}
        return x.sum()

    @planned
    def next_weights(self, weights: Any, x: Any) -> Any:
        return weights - self.rate * x.mean()


def test_a_step_that_changes_arrays_of_self_is_refused_and_leaves_them() -> None:
    trainer = Trainer()
    weights = trainer.weights
    with pytest.raises(InputError, match=r"changes self\.weights\['w'\], and self is static: .* return its new value"):
        trainer.step(X)
    assert trainer.weights is weights


def test_arrays_of_self_that_are_others_than_planned_are_told() -> None:
    trainer = Trainer()
    trainer.loss(X)
    trainer.weights = {"w": jnp.zeros((32, 32))}
    with pytest.raises(InputError, match=r"reads the array self\.weights\['w'\], which is another one"):
        trainer.loss(X)


def test_so_is_an_array_without_dimensions() -> None:
    trainer = Trainer(jnp.asarray(0.1))
    assert trainer.next_weights(X, X).shape == X.shape
    trainer.rate = jnp.asarray(0.2)
    with pytest.raises(InputError, match=r"reads the array self\.rate, which is another one"):
        trainer.next_weights(X, X)


def test_a_plan_tells_them_too() -> None:
    trainer = Trainer()
    run = autoshard.plan(lambda held, x: (x @ held.weights["w"]).sum(), trainer, X, **ASKED).jit()
    assert run(trainer, X) == (X @ np.ones((32, 32))).sum()
    trainer.weights["w"] = jnp.zeros((32, 32))
    with pytest.raises(InputError, match=r"held is static"):
        run(trainer, X)


class Plain:
    """Has no planned methods: they are planned of an object."""

    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def __call__(self, x: Any) -> Any:
        return (x @ self.weights).sum()

    def step(self, x: Any) -> Any:
        self.weights = self.weights - x.mean()
        return x.sum()


class Outer:
    def __init__(self) -> None:
        self.layers, self.outer = [Plain(jnp.ones((32, 32)))], self

    def loss(self, x: Any) -> Any:
        return self.layers[0](x)

    def step(self, x: Any) -> Any:
        return self.layers[0].step(x)


@pytest.mark.parametrize("weights", [jnp.ones((32, 32)), np.ones((32, 32), np.float32), np.ones((32, 32))])
@pytest.mark.parametrize("of", [lambda x: x, lambda x: x.__call__, lambda x: jax.jit(x.__call__), functools.partial])
def test_arrays_of_the_object_whose_method_is_planned_are_told_where_they_are_others(of: Any, weights: Any) -> None:
    held = Plain(weights)
    run = planned(of(held))
    assert run(X) == run(X) == (X @ np.ones((32, 32))).sum()
    held.weights = np.zeros((32, 32))
    with pytest.raises(InputError, match=r"self is static, and the function reads the array self\.weights"):
        run(X)


def test_a_plan_of_a_method_tells_them_too() -> None:
    held = Plain(jnp.ones((32, 32)))
    run = autoshard.plan(held, X, **ASKED).jit()
    assert run(X) == (X @ np.ones((32, 32))).sum()
    held.weights = jnp.zeros((32, 32))
    with pytest.raises(InputError, match=r"reads the array self\.weights"):
        run(X)


def test_arrays_of_objects_in_an_object_are_told() -> None:
    outer = Outer()
    run = planned(Outer.loss)
    run(outer, X)
    outer.layers[0].weights = jnp.zeros((32, 32))
    with pytest.raises(InputError, match=r"reads the array self\.layers\[0\]\.weights"):
        run(outer, X)


def test_arrays_beside_keys_that_have_no_order_are_told() -> None:
    held = Plain(jnp.ones((32, 32)))
    held.table = {1: [held.weights], "a": None, None: {}}
    run = planned(lambda self, x: (x @ self.table[1][0]).sum(), static_argnums=0)
    run(held, X)
    held.table[1][0] = jnp.zeros((32, 32))
    with pytest.raises(InputError, match=r"reads the array self\.table\[1\]\[0\]"):
        run(held, X)


@pytest.mark.parametrize("made", [Outer, lambda: Plain(jnp.ones((32, 32)))])
def test_a_method_that_changes_arrays_of_its_object_is_refused_and_leaves_them(made: Any) -> None:
    held = made()
    with pytest.raises(InputError, match=r"changes self\.(layers\[0\]\.)?weights, and self is static"):
        planned(held.step)(X)
    inner = held.layers[0] if isinstance(held, Outer) else held
    assert isinstance(inner.weights, jax.Array) and inner.weights.sum() == 32 * 32


def test_attributes_that_no_plan_reads_may_change() -> None:
    trainer = Trainer()
    for _ in range(2):
        trainer.next_weights(jnp.ones(32), X)
        trainer.calls += 1
        trainer.weights = {"w": jnp.zeros((32, 32))}


def test_another_object_is_planned_for_itself() -> None:
    slow, quick = Trainer(0.1), Trainer(0.5)
    assert slow.next_weights(jnp.ones(32), X)[0] == pytest.approx(0.9)
    assert quick.next_weights(jnp.ones(32), X)[0] == pytest.approx(0.5)


def test_a_step_whose_update_feeds_no_output_is_warned_of_at_its_first_call() -> None:
    def step(state: dict[str, Any], x: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.square(jnp.tanh(x @ w) @ w).mean())(state["w"])
        state["w"] = state["w"] - 0.1 * gradient
        return loss

    with pytest.warns(UserWarning, match=r"step: .* feed no output.* is the state returned\?"):
        planned(step)({"w": jnp.ones((32, 32))}, X)


def test_a_number_of_the_state_and_the_array_that_a_step_returns_for_it_share_a_plan() -> None:
    run = planned(lambda state: {"step": state["step"] + 1})
    state: Any = {"step": 0}
    for _ in range(3):
        state = run(state)
    assert state["step"] == 3
    assert sum(len(plans) for plans in run._ready.values()) == 1
