"""A plan is called, placed and verified as its function was planned: by keyword, with numbers and constant results."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autoshard
from autoshard.api.plans import STATE_NOTHING
from autoshard.errors import InputError
from autoshard.request.request import SearchWords
from autoshard.verify import Asked

ASKED: dict[str, Any] = {"mesh": {"d": 8}, "hardware": "tpu_v5e", "effort": 0.2}
X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 8)), jnp.float32)
W = X + 1


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {"x": X, "w": W}), ((), {"w": W, "x": X}), ((X,), {"w": W})],
    ids=["all by keyword", "in another order", "the last by keyword"],
)  # fmt: skip
def test_arguments_that_were_planned_by_keyword_are_taken_by_keyword(args: tuple[Any, ...], kwargs: Any) -> None:
    plan = autoshard.plan(product, *args, **kwargs, **ASKED)
    run = plan.jit()
    np.testing.assert_allclose(run(*args, **kwargs), X @ W, rtol=1e-5)
    np.testing.assert_allclose(run(X, W), X @ W, rtol=1e-5)
    np.testing.assert_allclose(run(*plan.place(*args, **kwargs)), X @ W, rtol=1e-5)
    assert plan.verify(product, *args, **kwargs, **ASKED).ok
    np.testing.assert_allclose(autoshard.jit(product, **ASKED)(*args, **kwargs), X @ W, rtol=1e-5)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {"x": X, "w": W}), ((), {"w": W, "x": X}), ((X,), {"w": W})],
    ids=["all by keyword", "in another order", "the last by keyword"],
)  # fmt: skip
def test_arguments_that_were_planned_by_position_are_taken_by_keyword(args: tuple[Any, ...], kwargs: Any) -> None:
    plan = autoshard.plan(product, X, W, **ASKED)
    for run in (plan.jit(), plan.jit(form="constraints"), jax.jit(plan.jit()), jax.jit(plan.lowered.fn)):
        np.testing.assert_allclose(run(*args, **kwargs), X @ W, rtol=1e-5)
    np.testing.assert_allclose(plan.jit().lower(*args, **kwargs).compile()(X, W), X @ W, rtol=1e-5)
    np.testing.assert_allclose(plan.jit()(*plan.place(*args, **kwargs)), X @ W, rtol=1e-5)


def test_a_planned_function_has_the_signature_and_the_attributes_of_a_jitted_one() -> None:
    run = autoshard.plan(product, X, W, **ASKED).jit()
    assert list(inspect.signature(run).parameters) == ["x", "w"]
    assert (run.__name__, isinstance(run, jax.stages.Wrapped)) == ("product", True)
    assert run.eval_shape(X, w=W).shape == run.trace(x=X, w=W).out_info.shape == (8, 8)
    run.clear_cache()


def test_arguments_by_keyword_that_were_not_planned_are_told() -> None:
    def scaled(x: jax.Array, w: jax.Array = W, *, by: float = 1.0) -> jax.Array:
        return x @ w * by

    run = autoshard.plan(scaled, X, **ASKED).jit()
    for wrong, said in [
        ({"w": W}, "planned for x by position, called with 1 by position, w; call it so, or plan it as"),
        ({"by": 2.0}, "planned for x by position, called with 1 by position, by"),
        ({"v": W}, "the function has no argument 'v'; it takes x, w, by"),
    ]:
        with pytest.raises(InputError, match=said):
            run(X, **wrong)


def test_a_place_that_goes_by_position_only_is_told() -> None:
    def only(x: jax.Array, /) -> jax.Array:
        return x * 2

    with pytest.raises(InputError, match=r"cannot be called with these arguments: .*positional.only"):
        autoshard.plan(only, X, **ASKED).jit()(x=X)


def test_a_call_by_keyword_is_served_by_the_plan_of_a_call_by_position() -> None:
    planned = autoshard.jit(product, keep=False, **ASKED)
    np.testing.assert_allclose(planned(X, W), X @ W, rtol=1e-5)
    first = planned.plan
    np.testing.assert_allclose(planned(w=W, x=X), X @ W, rtol=1e-5)
    assert planned.plan is first


def test_an_argument_that_is_donated_by_name_may_go_by_keyword() -> None:
    plan = autoshard.plan(jax.jit(product, donate_argnames=("x",)), x=X, w=W, **ASKED)
    assert plan.program.donated == {0}
    np.testing.assert_allclose(plan.jit()(x=jnp.array(X), w=W), X @ W, rtol=1e-5)


@pytest.mark.parametrize(
    "constant", [lambda: 0.1, lambda: True, lambda: jnp.zeros(()), lambda: np.float32(2)],
    ids=["a number", "a truth", "an array", "a scalar of numpy"],
)  # fmt: skip
def test_a_plan_of_a_function_with_a_constant_result_is_kept_and_verified(
    tmp_path: Path, constant: Callable[[], Any]
) -> None:
    def step(x: jax.Array) -> Any:
        return x * 2, {"rate": constant()}

    plan = autoshard.plan(step, X, **ASKED)
    plan.save(tmp_path / "plan.json")
    out, told = autoshard.Plan.load(tmp_path / "plan.json").attach(step, X).jit()(X)
    np.testing.assert_allclose(out, X * 2)
    assert told["rate"] == constant()
    assert plan.verify(step, X, **ASKED).ok


def test_static_leaves_of_a_result_come_back_without_any_static_argument() -> None:
    out = autoshard.plan(lambda x: {"y": x * 2, "act": jnp.tanh}, X, **ASKED).jit()(X)
    assert out["act"] is jnp.tanh
    np.testing.assert_allclose(out["y"], X * 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [2.0, 3, np.int64(2), np.float64(0.5)])
def test_a_plan_with_a_number_for_an_argument_is_verified(number: Any) -> None:
    def scaled(x: jax.Array, by: Any) -> jax.Array:
        return x * by

    assert autoshard.plan(scaled, X, number, **ASKED).verify(scaled, X, number, **ASKED).ok


@pytest.mark.parametrize(
    ("transformed", "plain"),
    [
        (lambda f: jax.jit(f)(X), lambda f: f(X)),
        (lambda f: jax.grad(lambda x: f(x).sum())(X), lambda f: jax.grad(lambda x: f(x).sum())(X)),
        (lambda f: jax.vmap(f)(jnp.stack([X, W])), lambda f: jax.vmap(f)(jnp.stack([X, W]))),
        (lambda f: jax.lax.scan(lambda c, _: (f(c), None), X, None, length=2)[0], lambda f: f(f(X))),
        (lambda f: autoshard.jit(lambda x: f(x) + 1, **ASKED)(X), lambda f: f(X) + 1),
    ],
    ids=["jit", "grad", "vmap", "scan", "autoshard.jit"],
)
def test_a_function_of_autoshard_jit_may_be_transformed(
    transformed: Callable[[Any], Any], plain: Callable[[Any], Any]
) -> None:
    def f(x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ x)

    np.testing.assert_allclose(transformed(autoshard.jit(f, **ASKED)), plain(f), rtol=2e-4, atol=1e-5)


def test_a_function_of_autoshard_jit_has_a_shape_before_it_runs() -> None:
    out = jax.eval_shape(autoshard.jit(lambda x: jnp.tanh(x @ x).sum(), **ASKED), X)
    assert (out.shape, out.dtype) == ((), jnp.float32)


@pytest.mark.parametrize(
    "stating_nothing",
    [{"time_limit": 60, "progress": str.strip}, {"loop_parts": "auto"}, {"form": "explicit", "effects": "drop"}],
    ids=" ".join,
)
def test_a_plan_is_verified_in_the_very_words_that_it_was_asked_for(stating_nothing: dict[str, Any]) -> None:
    plan = autoshard.plan(product, X, W, **ASKED, **stating_nothing)
    assert plan.verify(product, X, W, **ASKED, **stating_nothing).ok


def test_every_option_of_planning_is_known_to_verification() -> None:
    options = {
        name for name, one in inspect.signature(autoshard.plan).parameters.items() if one.kind is one.KEYWORD_ONLY
    }
    options |= set(SearchWords.__annotations__)
    known = {field.name for field in fields(Asked)} | set(inspect.signature(autoshard.Plan.verify).parameters)
    assert options - known == STATE_NOTHING - {"effects"}
