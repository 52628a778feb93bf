"""Objective overlap counts what a device waits for, or its busiest link where that works for longer."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct
from plan_cases import Pin, f32, problem, program_of

from autoshard import plan
from autoshard.api.bound import check_bound
from autoshard.api.plans import Plan
from autoshard.costs.price import price
from autoshard.formulation.assign import assignment_of
from autoshard.planning import Model, answer, build_model, decide, over_links, stages
from autoshard.planning.decide import search_plan
from autoshard.planning.decision import Decision
from autoshard.planning.no_plan import NoAnswerError
from autoshard.planning.over_links import search_over_links
from autoshard.questions.alternatives import Alternatives
from autoshard.search_options import SearchOptions
from autoshard.solver.network import evaluate
from autoshard.solver.solution import Stopped
from autoshard.verify import check_plan


def loss(weights: Any, x: Any, y: Any) -> Any:
    hidden = jax.nn.relu(x @ weights["w1"])
    return ((hidden @ weights["w2"] - y) ** 2).mean()


def sgd(weights: Any, x: Any, y: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(weights, x, y)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads), value


SPECS = ({"w1": f32(512, 2048), "w2": f32(2048, 512)}, f32(1024, 512), f32(1024, 512))


def trained(**stated: Any) -> Plan:
    """A step of training in which gradients hide behind little work."""
    return plan(
        sgd, *SPECS, mesh={"x": 2, "y": 4}, hardware="tpu_v5e", objective="overlap", donate_argnums=(0,), **stated
    )


@pytest.fixture(scope="module")
def found() -> Plan:
    return trained()


def work_of_links(of: Plan) -> float:
    return max(seconds for name, seconds in of.step_time.resources_s.items() if name.startswith("ici"))


def test_what_hides_still_takes_turns_on_a_link(found: Plan) -> None:
    """What devices wait for alone is least where the links work 105 us, for 77 us that another plan takes in all."""
    model = build_model(problem(found.program, {"x": 2, "y": 4}).minimising("overlap"))
    alone, both = decide(model), answer(model)
    assert model.shared.exposure.waited_s(alone.cost) < model.shared.exposure.waited_s(both.cost)
    assert alone.objective_s > 1.3 * both.objective_s


def test_no_link_works_for_longer_than_the_objective_counts(found: Plan) -> None:
    extra = found.memory_price_s
    assert found.objective_s - extra == pytest.approx(max(found.step_time.waited_s, work_of_links(found)), rel=1e-9)
    assert found.objective_s - extra == pytest.approx(found.step_time.estimate_s, rel=1e-9)


def every_cost(model: Model) -> Iterator[float]:
    """The objective of every assignment, priced from its schedule."""
    network = model.repeats.network
    for assignment in product(*(range(len(costs)) for costs in network.costs)):
        if evaluate(network, assignment).cost is not None:
            schedule = model.schedule(assignment)
            cost = price(model.problem.program, schedule, model.fusion, model.prices)
            yield model.seconds(cost) + model.memory_price_s(assignment)


def moving(random: Random) -> Model:
    """A program that moves much and works little, on GPUs: values that come cut or whole, and leave so, or turned."""
    rows, columns, turned = random.choice([1024, 4096]), random.choice([1024, 2048]), random.random() < 0.5
    specs = ShapeDtypeStruct((rows, columns), jnp.bfloat16), ShapeDtypeStruct((columns, columns), jnp.bfloat16)
    program = program_of(lambda a, b: (a * 2, (b.T if turned else b) + 1), *specs)
    names = (*program.input_names, *program.output_names)
    stated = ('[{"x"}, {}]', '[{}, {"x"}]', "[{}, {}]")
    pins = [Pin(name, random.choice(stated)) for name in names if random.random() < 0.8]
    return build_model(problem(program, {"x": 4}, pins=pins, profile="h100").minimising("overlap"))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_is_the_cheapest_of_all_and_nothing_is_below_its_bound(seed: int) -> None:
    model = moving(Random(seed))
    decision = answer(model)
    least = min(every_cost(model))
    assert decision.bound_s <= min(least, decision.objective_s)
    assert decision.objective_s <= least + decision.rounding_s  # less where links have a shorter way


def test_the_bound_of_a_mean_is_proved(found: Plan) -> None:
    assert found.certificate is not None and found.certificate.weights
    assert found.gap < 0.03
    check = check_bound(found.to_dict())
    assert check.status == "ok", check


def weights_of_more_than_all(told: dict[str, float]) -> dict[str, float]:
    return {name: 20 * weight for name, weight in told.items()}


def weights_of_others(told: dict[str, float]) -> dict[str, float]:
    return dict.fromkeys(told, 0.3)


def no_weights(told: dict[str, float]) -> dict[str, float]:
    return {}


@pytest.mark.parametrize("spoil", [weights_of_more_than_all, weights_of_others, no_weights])
def test_a_certificate_is_about_its_own_mean(
    found: Plan, spoil: Callable[[dict[str, float]], dict[str, float]]
) -> None:
    told = found.to_dict()
    assert check_bound(told).status == "ok"
    told["certificate"]["weights"] = spoil(told["certificate"]["weights"])
    assert check_bound(told).status == "failed"


def test_a_serial_plan_has_no_certificate_about_links() -> None:
    told = plan(sgd, *SPECS, mesh={"x": 2, "y": 4}, hardware="tpu_v5e", donate_argnums=(0,)).to_dict()
    assert check_bound(told).status == "ok"
    told["certificate"]["weights"] = {"ici:0": 0.1}
    assert any("weighs links, which objective serial does not count" in line for line in check_bound(told).lines)


def test_the_objective_of_a_plan_is_worked_out_again(found: Plan) -> None:
    told = found.to_dict()
    assert check_plan(told).findings == ()
    told["objective_s"] *= 0.99
    assert any("objective_s is" in str(finding) for finding in check_plan(told).findings)


def test_stages_weigh_links_each_for_itself_and_are_proved() -> None:
    pins = [Pin("x", '[{"x"}p0, {?}p2]'), Pin("weights/w1", '[{?}p2, {"y"}p1]')]
    staged = trained(constraints=pins)
    assert [stage.priority for stage in staged.stages] == [0, 1, 2]
    weights = [stage.certificate.weights for stage in staged.stages if stage.certificate is not None]
    assert len(weights) == 3 and weights[0]
    assert check_bound(staged.to_dict()).status == "ok"
    assert check_plan(staged.to_dict()).findings == ()


def test_within_a_memory_limit_links_count_too() -> None:
    asked: dict[str, Any] = {"mesh": {"x": 2, "y": 2}, "hardware": "h100", "donate_argnums": (0,)}
    free = plan(sgd, *SPECS, **asked, objective="overlap")
    limit = int(0.9 * free.memory.peak_bytes)
    limited = plan(sgd, *SPECS, **asked, objective="overlap", memory_limit=limit)
    assert limited.memory.peak_bytes <= limit
    assert limited.step_time.resources_s["nvlink"] <= limited.objective_s
    assert limited.bound_s >= free.bound_s * (1 - 1e-6)
    assert limited.certificate is not None and limited.certificate.weights
    assert check_bound(limited.to_dict()).status == "ok"


def test_a_plan_with_means_is_the_same_every_time(found: Plan) -> None:
    again = trained()
    assert json.dumps(again.to_dict(), sort_keys=True) == json.dumps(found.to_dict(), sort_keys=True)


def test_a_known_plan_that_is_cheaper_than_what_waits_alone_is_kept(found: Plan) -> None:
    """Where means are not searched any more, what the search began with is the answer."""
    model = build_model(problem(found.program, {"x": 2, "y": 4}).minimising("overlap"))
    best = answer(model)
    known = assignment_of(model.collected, model.encoded, model.repeats, best.schedule)
    assert known is not None
    hurried = SearchOptions().within(0.0)
    assert search_over_links(model, hurried, starts=[known]).objective_s == pytest.approx(best.objective_s)


def test_what_an_alternative_costs_counts_links_too() -> None:
    """To hand out whole what came cut over GPUs hides in part, but NVLink is busy with all of it."""
    pins = [Pin("w", '[{"x"}, {}]')]
    weight = ShapeDtypeStruct((2048, 8192), jnp.bfloat16)
    crossing_s = 2048 * 8192 * 2 * 3 / 4 / 450e9  # of what is gathered, over NVLink
    cut = plan(lambda w: 2 * w, weight, mesh={"x": 4}, hardware="h100", constraints=pins, objective="overlap")
    (whole,) = (a for a in Alternatives(cut).output(0) if a.sharding == "[{}, {}]")
    assert cut.objective_s < crossing_s
    assert whole.extra_s == pytest.approx(crossing_s - cut.objective_s, rel=1e-3)


def test_where_no_plan_is_found_in_its_part_of_the_time_the_rest_is_for_a_plan(
    found: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model(problem(found.program, {"x": 2, "y": 4}).minimising("overlap"))
    calls: list[Any] = []

    def at_last(model: Model, options: SearchOptions, *, starts: Any = ()) -> Any:
        calls.append(model.problem.weights)
        if len(calls) == 1:
            raise NoAnswerError(model, False, False, "", Stopped.TIME, [])
        return search_plan(model, options, starts=starts)

    monkeypatch.setattr(over_links, "search_plan", at_last)
    assert search_over_links(model).objective_s == pytest.approx(found.objective_s)
    assert calls[:2] == [(), ()]


def test_a_mean_is_counted_in_the_ticks_of_what_it_is_a_mean_of(found: Plan) -> None:
    model = build_model(problem(found.program, {"x": 2, "y": 4}).minimising("overlap"))
    mean = over_links.weighing(model, (("ici:0", 0.9999),))
    assert mean.encoded.tick_s == model.encoded.tick_s


def test_a_last_stage_that_weighs_links_rounds_no_less_than_what_is_told_beside_it() -> None:
    def layers(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, wk: (jnp.tanh(c @ wk), c.sum(0)), x, w)

    specs = ShapeDtypeStruct((4, 4096, 4096), jnp.bfloat16), ShapeDtypeStruct((2048, 4096), jnp.bfloat16)
    staged = plan(
        layers, *specs, mesh={"data": 2, "tensor": 2}, hardware="tpu_v5e", objective="overlap",
        priorities=["data", "zero3"], roles={"w": [None, "embed", "mlp"], "x": ["batch", None]},
    )  # fmt: skip
    assert staged.joint is not None and staged.joint.status == "optimal"
    assert check_plan(staged.to_dict()).findings == ()


def hurried(found: Plan, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool) -> Decision:
    """What is decided where the first part of the time ends with a plan for which links work less than devices wait,
    and the rest of it with the one of least waiting, or with none.
    """
    model = build_model(problem(found.program, {"x": 2, "y": 4}).minimising("overlap"))
    rounds = [{"what": "solving", "bound": 0, "proves": True, "stopped": Stopped.TIME}]
    answers = iter([replace(answer(model), stats={"rounds": rounds}), *([decide(model)] if goes_on else [])])

    def one_after_the_other(model: Model, options: SearchOptions, *, starts: Any = ()) -> Decision:
        for decision in answers:
            return decision
        raise NoAnswerError(model, False, False, "", Stopped.TIME, [])

    monkeypatch.setattr(over_links, "search_plan", one_after_the_other)
    return search_over_links(model, SearchOptions().within(0.0))


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_the_rest_of_the_time_finds_takes_no_place_of_a_cheaper_plan(
    found: Plan, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    decision = hurried(found, monkeypatch, goes_on=goes_on)
    assert decision.objective_s == pytest.approx(found.objective_s)
    assert decision.bound_s == pytest.approx(found.bound_s)


def test_a_plan_that_ctrl_c_leaves_is_no_dearer_than_what_the_search_began_with(
    found: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model(problem(found.program, {"x": 2, "y": 4}).minimising("overlap"))
    known = assignment_of(model.collected, model.encoded, model.repeats, answer(model).schedule)
    assert known is not None
    stopped = replace(decide(model), stats={"rounds": [{"what": "solving", "stopped": Stopped.INTERRUPT}]})
    monkeypatch.setattr(over_links, "search_plan", lambda *_, **__: stopped)
    left = search_over_links(model, starts=[known])
    assert left.interrupted
    assert left.objective_s == pytest.approx(found.objective_s)


def test_links_decide_where_a_device_waits_for_nothing(tmp_path: Path) -> None:
    profile = tmp_path / "hides_all.yaml"
    packaged = resources.files("autoshard.costmodels").joinpath("profiles", "h100.yaml").read_text()
    profile.write_text(packaged.replace("all_gather: 0.8", "all_gather: 1.0"))
    pins = [Pin("w", '[{"x"}, {}]'), Pin("out", "[{}, {}]")]
    weight = ShapeDtypeStruct((2048, 8192), jnp.bfloat16)
    handed = plan(lambda w: w, weight, mesh={"x": 4}, hardware=str(profile), constraints=pins, objective="overlap")
    assert handed.step_time.waited_s == 0
    assert handed.objective_s >= handed.step_time.resources_s["nvlink"] > 0


def test_all_at_once_costs_no_more_than_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of the last stage has all statements, so where a search all at once ends with a dearer one it counts."""
    monkeypatch.setattr(stages, "answer", decide)
    staged = trained(constraints=[Pin("x", '[{"x"}p0, {?}p2]'), Pin("weights/w1", '[{?}p2, {"y"}p1]')])
    assert staged.joint is not None
    assert staged.joint.cost_s == staged.objective_s
    assert staged.joint.price_of_stages_s == 0
