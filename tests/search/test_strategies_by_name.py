"""Strategies by name on one network: what each leaves open, rules for conflicts, and that joint is never worse."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autoshard import InputError, NotFoundError, Pin, plan
from autoshard.api.verbs import ask
from autoshard.frontends.jax.function import trace
from autoshard.planning import Model, build_model, decide
from autoshard.propagation import propagate
from autoshard.search.greedy import place_cheapest_first
from autoshard.search.starts import each_start
from autoshard.search.strategy import decide_by, start_of
from autoshard.solver.network import CostNetwork, Edge, evaluate
from autoshard.strategies.choice import LADDER, NAMES, Conflicts, StrategyName, strategy_names
from autoshard.verify.plan.checker import check_plan

SPEC = jax.ShapeDtypeStruct
MESH = {"x": 2, "y": 4}


def mlp(params: dict[str, Any], x: Any) -> Any:
    hidden = jnp.tanh(x @ params["w1"])
    return jnp.sum((hidden @ params["w2"]) ** 2)


def step(params: dict[str, Any], x: Any) -> Any:
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(mlp)(params, x))


PARAMS = {"w1": SPEC((64, 256), jnp.float32), "w2": SPEC((256, 64), jnp.float32)}
PINS = (Pin("x", '[{"x"}, {?}]'), Pin("params/w1", '[{?}, {"y", ?}]'))


def model_of(f: Any, *specs: Any, pins: tuple[Pin, ...] = (), limit: int | None = None) -> Model:
    program = trace(f, *specs).program
    return build_model(ask(program, mesh=MESH, hardware="tpu_v5e", constraints=pins, memory_limit=limit).problem)


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of(step, PARAMS, SPEC((128, 64), jnp.float32), pins=PINS)


@pytest.mark.parametrize("name", [*LADDER, "greedy"])
def test_no_strategy_is_better_than_the_proven_optimum_and_all_hold_the_statements(model: Model, name: str) -> None:
    best = decide(model)
    found = decide_by(model, StrategyName(name))
    assert best.status == "optimal"
    assert found.objective_s >= best.objective_s - best.rounding_s - found.rounding_s
    assert found.bound_s <= best.objective_s
    x, w1 = (model.problem.program.body.args[k] for k in (2, 0))
    mesh = model.problem.mesh
    assert found.schedule.definitions[x].text(mesh).startswith('[{"x"}')
    assert '{"y"' in found.schedule.definitions[w1].text(mesh)


@pytest.mark.parametrize("ladder", LADDER)
def test_ops_run_where_propagation_brings_their_tensors(model: Model, ladder: str) -> None:
    problem = model.problem
    stated = {v: pin.sharding for pin in problem.pins for v in pin.values}
    spread = propagate(problem.program, problem.mesh.mesh, stated, strategy=ladder)
    found = start_of(model, StrategyName(ladder))
    for op, factors in spread.factors.items():
        agreed = [[a for ref in refs for a in problem.mesh.atoms_for(ref)] for refs in factors]
        assert [list(f) for f in found.schedule.placements[op].factors] == agreed, problem.program.ops[op]


def matmul(x: Any, w: Any) -> Any:
    return x @ w


@pytest.mark.parametrize(
    ("rule", "factor"),
    [("none", None), ("first-factor", 0), ("biggest-tensor", 2), ("batch-before-contracting", 0), ("cost", "any")],
)
def test_a_rule_says_where_an_axis_goes_that_two_tensors_have_on_different_factors(rule: str, factor: Any) -> None:
    """x has the axis on its rows, the larger w on what is summed over."""
    pins = (Pin("x", '[{"x"}, {}]'), Pin("w", '[{"x"}, {}]'), Pin("out", "[{}, {}]"))
    contested = model_of(matmul, SPEC((16, 64), jnp.float32), SPEC((64, 512), jnp.float32), pins=pins)
    found = start_of(contested, StrategyName.parse(f"basic:{rule}"))
    (op,) = found.schedule.placements
    (x,) = contested.problem.mesh.atoms_of["x"]
    where = [f for f, atoms in enumerate(found.schedule.placements[op].factors) if x in atoms]
    rule_of = contested.problem.program.ops[op].rule
    assert rule_of is not None
    if factor == "any":
        costs = [start_of(contested, StrategyName.parse(f"basic:{r.value}")).solution.cost for r in list(Conflicts)[:4]]
        assert found.solution.cost is not None
        assert all(c is not None and found.solution.cost <= c for c in costs)
    elif factor == 2:
        assert where == sorted(rule_of.reduction)
    else:
        assert where == ([] if factor is None else [factor])


def test_greedy_takes_the_cheapest_op_first_and_never_goes_back() -> None:
    """b is cheapest at its state 0; a must then pay the way there, which an optimum would avoid."""
    way = np.array([[100, 0], [0, 100]])
    network = CostNetwork((np.array([5, 9]), np.array([1, 2])), (Edge(0, 1, way),))
    chosen = place_cheapest_first(network, np.array([True, True]))
    assert chosen == {1: 0, 0: 1}
    assert evaluate(network, [1, 0]).cost == 10
    assert evaluate(network, [0, 1]).cost == 7


def test_the_starts_hold_and_joint_is_never_worse_even_without_effort(model: Model) -> None:
    starts = list(each_start(model))
    costs = [evaluate(model.repeats.network, s).cost for s in starts]
    assert costs
    assert all(c is not None for c in costs)
    hurried = plan(
        step, PARAMS, SPEC((128, 64), jnp.float32), mesh=MESH, hardware="tpu_v5e", constraints=PINS, effort=1e-6
    )
    least = min(c for c in costs if c is not None) * model.encoded.tick_s
    assert hurried.objective_s <= least + 2 * hurried.rounding_s


def test_a_plan_of_any_strategy_passes_the_independent_checker_and_says_how_it_was_made() -> None:
    for name in ("greedy", "user-priority:cost", "aggressive:first-factor"):
        made = plan(
            step, PARAMS, SPEC((128, 64), jnp.float32), mesh=MESH, hardware="tpu_v5e", constraints=PINS, strategy=name
        )
        assert check_plan(made.to_dict()).ok
        assert any(f"strategy {name}" in note for note in made.notes)
        assert made.bound_s <= made.objective_s


def test_a_strategy_without_a_plan_within_the_limit_says_that_this_proves_nothing() -> None:
    with pytest.raises(NotFoundError, match=r"found no plan .*no proof that there is none\); try strategy joint"):
        plan(
            step, PARAMS, SPEC((128, 64), jnp.float32), mesh=MESH, hardware="tpu_v5e", strategy="basic",
            memory_limit=140_000,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gredy", "did you mean 'greedy'"),
        ("basic:furst", "unknown rule 'furst'"),
        ("greedy:none", "settles conflicts by cost"),
        ("", "unknown strategy"),
    ],
)
def test_unknown_names_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        StrategyName.parse(text)


def test_lists_of_names_are_read_and_repetitions_refused() -> None:
    assert [str(s) for s in strategy_names("basic, basic:cost,joint")] == ["basic", "basic:cost", "joint"]
    assert {str(s) for s in strategy_names(",".join(NAMES))} == set(NAMES)
    for wrong in ("basic,basic", "basic,,joint", ""):
        with pytest.raises(InputError):
            strategy_names(wrong)


def test_a_stage_may_settle_its_conflicts_by_a_rule() -> None:
    """x has the axis on its rows, w on what is summed over: by the rule the batch wins, at a price."""
    pins = (Pin("x", '[{"x", ?}, {?}]'), Pin("w", '[{"x", ?}, {?}]'), Pin("out", '[{?}, {"y", ?}]', priority=1))
    specs = SPEC((16, 64), jnp.float32), SPEC((64, 512), jnp.float32)
    contested = model_of(matmul, *specs, pins=pins)
    (x,) = contested.problem.mesh.atoms_of["x"]
    costs = {}
    for rule, factor in (("cost", None), ("batch-before-contracting", 0), ("biggest-tensor", 2)):
        found = decide_by(contested, StrategyName.parse(f"staged:{rule}"))
        costs[rule] = found.objective_s
        (placement,) = found.schedule.placements.values()
        where = [f for f, atoms in enumerate(placement.factors) if x in atoms]
        rule_of = next(iter(contested.problem.program.ops.values())).rule
        assert rule_of is not None
        if factor is not None:
            assert where == (sorted(rule_of.reduction) if factor == 2 else [factor])
    assert costs["cost"] <= min(costs.values())
    with pytest.raises(InputError):
        StrategyName.parse("staged:none")


def test_a_strategy_that_does_not_fit_names_the_limit_that_was_stated() -> None:
    """Copies that only the simulation counts tighten the limit of its searches until none is left of it."""
    two = {"a": SPEC((1024, 4096), jnp.bfloat16), "b": SPEC((4096, 1024), jnp.bfloat16)}
    limit = 4404019
    tight = model_of(lambda w, x: jax.nn.relu(x @ w["a"]) @ w["b"], two, SPEC((512, 1024), jnp.bfloat16), limit=limit)
    with pytest.raises(NotFoundError, match=f"it holds [0-9]+ bytes at .*, the limit is {limit} bytes"):
        start_of(tight, StrategyName("greedy"))
