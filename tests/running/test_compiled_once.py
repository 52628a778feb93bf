"""A train step is compiled for the first of its calls, and for no other."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from process_runs import MLP, solved

from autoshard import plan as planned
from autoshard.api.plans import Plan
from autoshard.api.session import train
from autoshard.config import load_config
from autoshard.config.problem import build_problem


def compilations(caplog: pytest.LogCaptureFixture, plan: Plan) -> int:
    """How often the function of a plan was compiled."""
    told = [record.getMessage() for record in caplog.records]
    return sum(t.startswith("Finished XLA compilation") and f"jit({plan.program.name})" in t for t in told)


def test_a_train_step_is_compiled_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = Plan.load(solved(tmp_path, "mlp", MLP))
    problem = build_problem(load_config(tmp_path / "mlp.yaml"))
    plan = plan.attach(problem.function, *problem.specs, argnames=problem.argnames)
    jax.clear_caches()
    with jax.log_compiles():
        losses = train(plan, problem, 3, 0, lambda text: None)
    assert len(losses) == 3
    assert compilations(caplog, plan) == 1


def step(state: dict[str, jax.Array], x: jax.Array, rate: float = 0.1) -> dict[str, jax.Array]:
    grads = jax.grad(lambda w: jnp.square(jnp.tanh(x @ w["a"]) @ w["b"]).sum())(state)
    return jax.tree.map(lambda w, g: w - rate * g, state, grads)


@pytest.mark.parametrize("form", ["explicit", "constraints"])
@pytest.mark.parametrize("static", [{}, {"static_argnames": "rate"}])
@pytest.mark.parametrize("given", [np.ones, jnp.ones])
def test_a_step_that_begins_with_arrays_of_the_host_is_compiled_once(
    form: str, static: dict[str, str], given: type, caplog: pytest.LogCaptureFixture
) -> None:
    spec = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    plan = planned(
        step,
        {"a": spec, "b": spec},
        spec,
        *([0.1] if static else []),
        mesh={"x": 2, "y": 2},
        hardware="tpu_v5e",
        **static,
    )
    whole = given((64, 64), np.float32)
    state, run = {"a": whole, "b": whole}, plan.jit(form=form)
    with jax.log_compiles():
        for _ in range(3):
            state = run(state, whole, *([0.1] if static else []))
    assert compilations(caplog, plan) == 1
    assert state["a"].sharding.is_equivalent_to(plan.out_shardings["a"], 2)


@pytest.mark.parametrize(
    ("start", "then"), [(0, jnp.negative), (0.5, jnp.negative), (True, jnp.logical_not)], ids=["int", "float", "bool"]
)
def test_a_step_whose_state_begins_with_a_number_of_python_is_compiled_once(
    start: float, then: Callable[[jax.Array], jax.Array], caplog: pytest.LogCaptureFixture
) -> None:
    def doubled(state: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"at": then(state["at"]), "w": state["w"] * 2}

    state = {"at": start, "w": jnp.ones((8, 8))}
    plan = planned(doubled, state, mesh={"x": 2, "y": 2}, hardware="tpu_v5e")
    run = plan.jit()
    with jax.log_compiles():
        for _ in range(3):
            state = run(state)
    assert compilations(caplog, plan) == 1


def test_a_number_of_python_is_weakly_typed_where_a_plan_takes_it() -> None:
    plan = planned(lambda w, rate: w * rate, jnp.ones(8, jnp.bfloat16), 0.5, mesh={"x": 2}, hardware="tpu_v5e")
    assert plan.jit()(jnp.ones(8, jnp.bfloat16), 0.5).dtype == jnp.bfloat16
