"""The independent checker agrees with price, memory and layouts of plans: the best ones, and random ones far from
them.
"""

import json
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from plan_cases import PROGRAMS, f32, model_of, needless_copies, problem, program_of, random_assignment, unsolved_plan

import autoshard
from autoshard.api.plans import Plan
from autoshard.constraints import Pin
from autoshard.planning import build_model, decide
from autoshard.solver.network import evaluate
from autoshard.verify.plan.checker import check_plan


def findings(plan: Plan) -> list[str]:
    return [str(f) for f in check_plan(json.loads(json.dumps(plan.to_dict()))).findings]


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_plans_cost_and_hold_what_the_checker_says(name: str) -> None:
    model = model_of(name, {"x": 2, "y": 2})
    random = Random(3)
    checked = 0
    for _ in range(12):
        assignment = random_assignment(model.repeats.network, random)
        assert assignment is not None
        if not needless_copies(model, assignment):
            assert findings(unsolved_plan(model, assignment)) == []
            checked += 1
    assert checked >= 4


def test_a_condition_with_work_in_it_costs_the_same_everywhere() -> None:
    def f(w: Any, x: Any) -> Any:
        return jax.lax.while_loop(lambda c: jnp.square(c @ w).sum() < 9.0, lambda c: jnp.tanh(c @ w), x)

    model = build_model(problem(program_of(f, f32(8, 8), f32(4, 8)), {"x": 2, "y": 2}, trips=3))
    random = Random(5)
    for _ in range(6):
        assignment = random_assignment(model.repeats.network, random)
        assert assignment is not None
        if not needless_copies(model, assignment):
            plan = unsolved_plan(model, assignment)
            assert plan.objective_s == pytest.approx(
                evaluate(model.repeats.network, assignment).cost * model.encoded.tick_s, rel=1e-6
            )
            assert findings(plan) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_checker_finds_nothing_wrong_with_the_best_plan(name: str) -> None:
    model = model_of(name, {"x": 2, "y": 4})
    decision = decide(model)
    problem = model.problem
    plan = Plan(
        program=problem.program,
        schedule=decision.schedule,
        machine=problem.machine,
        cost=decision.cost,
        memory=decision.memory,
        status=decision.status,
        objective_s=decision.objective_s,
        bound_s=decision.bound_s,
        gap=decision.gap,
        memory_price_s=decision.memory_price_s,
        rounding_s=decision.rounding_s,
    )
    assert findings(plan) == []


def test_weights_taken_out_of_a_stack_cost_about_what_single_ones_do() -> None:
    def layers(ws: Any, x: Any) -> Any:
        for k in range(8):
            x = jnp.tanh(x @ ws[k])
        return x

    asked: Any = {"mesh": {"x": 8}, "hardware": "tpu_v5e"}
    stacked = autoshard.plan(layers, f32(8, 512, 512), f32(256, 512), **asked)
    single = autoshard.plan(layers, [f32(512, 512)] * 8, f32(256, 512), **asked)
    assert single.objective_s < stacked.objective_s < 1.05 * single.objective_s
    assert findings(stacked) == []


def test_a_sum_of_one_value_twice_is_cheaper_than_one_of_two_values() -> None:
    def sums(x: Any) -> Any:
        y = x + x
        return y, y + x

    plan = autoshard.plan(sums, f32(64, 128), mesh={"x": 1}, hardware="tpu_v5e")
    once, both = plan.cost.op_seconds.values()
    assert both == pytest.approx(1.5 * once)
    assert plan.objective_s == pytest.approx(once + both, rel=1e-3)
    assert findings(plan) == []


@pytest.mark.parametrize(
    ("cut", "rows", "arrays"), [('[{}, {"x"}]', 1, 1), ('[{"x"}, {}]', 1, 1), ('[{"x"}, {}]', 65, 2)]
)
def test_the_checker_knows_where_a_slice_is_written_over_a_donated_array(cut: str, rows: int, arrays: int) -> None:
    """Of 256 rows a block has 64."""

    def write(cache: Any, part: Any) -> Any:
        return jax.lax.dynamic_update_slice(cache, part, (3, 0))

    pin = Pin("cache", cut)
    plan = autoshard.plan(
        write, f32(256, 64), f32(rows, 64), mesh={"x": 4}, hardware="tpu_v5e", donate_argnums=0, constraints=[pin]
    )
    assert plan.memory.peak_bytes // (256 * 64) == arrays + 4 * rows * 64 // (256 * 64)
    assert findings(plan) == []
