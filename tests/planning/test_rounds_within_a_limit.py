"""How searches within a memory limit go, round after round."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct

import autoshard
from autoshard.api.verbs import placed
from autoshard.costmodels import Machine, load_profile, place_mesh
from autoshard.errors import InfeasibleError
from autoshard.frontends.jax.function import trace
from autoshard.planning import Decision, Problem, build_model, decide, fitting
from autoshard.planning.steps import FEW_NODES, SMALL_NODES, Step, steps
from autoshard.request.request import request_of
from autoshard.search_options import SearchOptions

WEIGHTS = {"w1": ShapeDtypeStruct((512, 2048), jnp.float32), "w2": ShapeDtypeStruct((2048, 512), jnp.float32)}
BATCH = [ShapeDtypeStruct((1024, 512), jnp.float32)] * 2


def sgd(weights: Any, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        return ((jax.nn.relu(x @ w["w1"]) @ w["w2"] - y) ** 2).mean()

    value, grads = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads), value


def h100(mesh: dict[str, int]) -> Machine:
    """H100s whose memory is counted as the TPU compiler's: what is asked here is how searches go in such networks."""
    return place_mesh(load_profile("h100").model_copy(update={"memory_rules": None}), mesh, None)


def planned(mesh: dict[str, int], hardware: str | Machine, limit: int) -> autoshard.Plan:
    return autoshard.plan(sgd, WEIGHTS, *BATCH, mesh=mesh, hardware=hardware, memory_limit=limit)


def test_few_decisions_are_searched_shortly_and_then_with_all_that_plans_may_hold() -> None:
    first, then = steps(FEW_NODES, effort=1.0)
    assert not first.rough and first.share < 0.1 and not first.whole
    assert then == Step(whole=True, last=True)


def test_more_decisions_are_searched_roughly_and_then_closely() -> None:
    gaps = [step.rough for step in steps(FEW_NODES + 1, effort=1.0)]
    assert gaps == sorted(gaps, reverse=True) and gaps[-1] == 0.0 and len(gaps) == 3
    assert [step.rough for step in steps(SMALL_NODES + 1, effort=1.0)] == gaps[1:]


def test_little_effort_never_goes_into_all_that_plans_may_hold() -> None:
    assert not any(step.whole for step in steps(FEW_NODES, effort=0.5))


def test_only_the_last_kind_of_search_is_the_last() -> None:
    for nodes in (1, FEW_NODES, SMALL_NODES, 10 * SMALL_NODES):
        assert [step.last for step in steps(nodes, effort=1.0)][::-1] == [
            True,
            *[False] * (len([*steps(nodes, 1.0)]) - 1),
        ]


def test_an_optimum_that_hangs_on_what_is_held_at_many_moments_is_proved() -> None:
    plan = planned({"a": 2, "b": 2}, h100({"a": 2, "b": 2}), 9_043_971)
    assert plan.status == "optimal"
    assert plan.memory.peak_bytes <= 9_043_971
    assert plan.cost.step_s == pytest.approx(0.10384428e-3, rel=1e-6)


def test_a_refusal_that_hangs_on_what_is_held_at_many_moments_is_proved() -> None:
    with pytest.raises(InfeasibleError) as refused:
        planned({"x": 4}, "tpu_v5e", 9_437_187)
    assert refused.value.facts is not None and refused.value.facts["proved"]


def attention(weights: Any, x: Any) -> Any:
    batch, tokens, width = x.shape
    q, k, v = ((x @ w).reshape(batch, tokens, 8, -1) for w in weights[:3])
    shares = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8.0, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(batch, tokens, width) @ weights[3]


def attention_step(weights: Any, x: Any) -> Any:
    value, grads = jax.value_and_grad(lambda w: (attention(w, x) ** 2).mean())(weights)
    return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], value


def test_where_nothing_is_found_it_is_looked_whether_anything_fits_at_all() -> None:
    """Rounds come to the moments at which nothing fits one after the other, and this took them 20 s."""
    weights, x = [ShapeDtypeStruct((512, 512), jnp.float32)] * 4, ShapeDtypeStruct((8, 128, 512), jnp.float32)
    said: list[str] = []
    with pytest.raises(InfeasibleError) as refused:
        autoshard.plan(
            attention_step, weights, x, mesh={"x": 4}, hardware="tpu_v5e", memory_limit=4_018_177,
            donate_argnums=(0,), progress=said.append,
        )  # fmt: skip
    assert refused.value.facts is not None and refused.value.facts["proved"]
    assert "looking whether anything fits the memory limit at all" in said
    assert not any("solving within the memory limit" in line for line in said)


def test_a_first_plan_comes_from_a_network_that_knows_of_the_fullest_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, other searches came first in networks of many nodes, and took all 60 s of steps of some hundred ops."""
    monkeypatch.setattr("autoshard.planning.searches.SMALL_NODES", 0)
    monkeypatch.setattr("autoshard.planning.beginning.Beginning._loosely", lambda run, limit, known: known)
    specs = [ShapeDtypeStruct((512, 512), jnp.float32)] * 4, ShapeDtypeStruct((8, 128, 512), jnp.float32)
    program = trace(attention_step, *specs, name="attention").program
    problem = Problem.make(program, *placed({"x": 4}, h100({"x": 4})))
    free = build_model(problem)
    limit = 3 * free.simulate(decide(free).schedule).peak_bytes // 4
    said: list[str] = []
    found = decide(build_model(replace(problem, memory_limit=limit)), SearchOptions(progress=said.append))
    told = list(dict.fromkeys(line.split(":")[0] for line in said))
    assert found.memory.peak_bytes <= limit
    assert told[1] == "looking for a plan within the memory limit at full moments"
    assert told[2] == "solving within the memory limit"


def chain(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = jax.nn.relu(x @ w)
    return x


def within_three_quarters(options: SearchOptions) -> Decision:
    """Five matmuls on 2x2, within three quarters of what the optimum without a limit holds."""
    specs = [ShapeDtypeStruct((1024, 512), jnp.float32), *[ShapeDtypeStruct((512, 512), jnp.float32)] * 5]
    problem = Problem.make(
        trace(chain, *specs, name="chain").program, *placed({"a": 2, "b": 2}, h100({"a": 2, "b": 2}))
    )
    free = build_model(problem)
    peak = free.simulate(decide(free).schedule).peak_bytes
    return decide(build_model(replace(problem, memory_limit=3 * peak // 4)), options)


@pytest.mark.slow
def test_where_the_effort_is_spent_the_time_that_is_stated_is_used() -> None:
    little = SearchOptions(effort=0.001).within(300)
    assert within_three_quarters(little).status == "feasible"
    assert within_three_quarters(replace(little, endless=True)).status == "optimal"


def test_the_last_search_of_an_endless_run_hardly_ends_by_its_effort() -> None:
    for nodes in (1, FEW_NODES, SMALL_NODES, 10 * SMALL_NODES):
        *others, last = steps(nodes, effort=1.0, endless=True)
        assert last.last and last.share > 100
        assert [replace(one, known=None) for one in others] == [
            replace(one, last=False) for one in steps(nodes, effort=1.0)
        ]


def test_the_search_before_the_last_is_endless_too_once_a_plan_is_known() -> None:
    *_, before, last = steps(SMALL_NODES, effort=1.0, endless=True)
    assert (before.effort(None), before.effort("a plan")) == (1.0, last.share)


@pytest.mark.parametrize(
    ("words", "endless"), [({"time_limit": 5}, True), ({"time_limit": 5, "effort": 1.0}, False), ({}, False)]
)
def test_a_run_is_endless_where_a_time_limit_is_stated_and_no_effort(words: Any, endless: bool) -> None:
    traced = trace(chain, ShapeDtypeStruct((8, 8), jnp.float32), name="chain")
    assert request_of(traced, mesh={"x": 2}, hardware="cpu_sim", **words).options.endless is endless


def test_a_proof_that_is_given_up_for_what_does_not_fit_claims_no_more_than_the_next_one_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fitting, "annealed", lambda *given: given[-1])  # which meets the optimum
    monkeypatch.setattr("autoshard.planning.model.axis_orders", lambda problem: ())  # with both no proof is given up

    def three_uses(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
        h = x @ w1
        return h @ w2, h @ w3, h.sum(axis=0)

    sizes = [(1024, 512), (512, 2048), (2048, 512), (2048, 256)]
    specs = [ShapeDtypeStruct(size, jnp.float32) for size in sizes]
    words: dict[str, Any] = {"mesh": {"a": 2, "b": 2}, "hardware": h100({"a": 2, "b": 2})}
    peak = autoshard.plan(three_uses, *specs, **words).memory.peak_bytes
    found = autoshard.plan(three_uses, *specs, **words, memory_limit=int(0.9 * peak), time_limit=300)
    reports = found.run["rounds"]
    assert [report["stopped"] for report in reports].count("unwanted") == 1
    assert found.status == "optimal"
