"""Counts of reshards: one that good plans keep anyway changes nothing, others are decided by prices and by rows."""

from dataclasses import replace
from itertools import product
from math import prod
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from plan_cases import f32, machine, mlp
from restriction_cases import MLP, planned
from test_brute_force import random_program

from autoshard import MaxReshards, Pin
from autoshard.api.bound import check_bound
from autoshard.api.plans import Plan
from autoshard.api.verbs import ask
from autoshard.constraints import match_pins, match_restrictions
from autoshard.errors import InfeasibleError
from autoshard.formulation.assign import assignment_of
from autoshard.frontends.jax.function import trace
from autoshard.planning import Model, Problem, build_model, decide
from autoshard.planning.counts_kept import has_few_reshards, keeps_counts
from autoshard.planning.decision import best_start
from autoshard.sharding.mesh import Mesh
from autoshard.solver import solve
from autoshard.solver.network import evaluate
from autoshard.verify import Status

PINS = [Pin(name, text) for name, text in {"w1": '[{"x"}, {"y"}]', "w2": '[{"y"}, {"x"}]', "x": '[{"y"}, {}]'}.items()]


def step(params: Any, x: Any) -> Any:
    """A train step of four equal layers."""

    def loss(layers: Any) -> Any:
        h = x
        for w1, w2 in layers:
            h = h + jnp.tanh(h @ w1) @ w2
        return jnp.square(h).mean()

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


LAYER = (f32(256, 1024), f32(1024, 256))
STEP = ([LAYER] * 4, f32(1024, 256))
ONE_LAYER = ([LAYER], f32(1024, 256))
"""Its best plan has 3 reshards; there are dearer ones with 1 and with none."""


ASKED: Any = {"mesh": {"x": 2, "y": 4}, "hardware": "tpu_v5e"}


def reshards(found: Plan) -> int:
    return sum(bool(way.steps) for way in (*found.schedule.shared.values(), *found.schedule.uses.values()))


def same_but_for_the_count(free: Plan, held: Plan) -> bool:
    """Whether two plans are one plan, and the same is told of it."""
    told = [(p.schedule, p.objective_s, p.bound_s, p.status, p.notes, p.sharing) for p in (free, held)]
    return told[0] == told[1] and len(held.statements) == len(free.statements) + 1


def test_a_count_that_the_free_plan_keeps_changes_nothing() -> None:
    free = planned(step, *STEP)
    assert free.sharing is not None and free.sharing.shared
    assert same_but_for_the_count(free, planned(step, *STEP, constraints=[MaxReshards(reshards(free))]))


def test_a_count_changes_nothing_within_a_memory_limit_that_the_best_plan_exceeds() -> None:
    limit = int(0.8 * planned(step, *ONE_LAYER).memory.peak_bytes)
    free = planned(step, *ONE_LAYER, memory_limit=limit)
    held = planned(step, *ONE_LAYER, memory_limit=limit, constraints=[MaxReshards(reshards(free))])
    assert same_but_for_the_count(free, held)


def test_its_bound_is_proved_on_the_network_without_the_count() -> None:
    held = planned(mlp, *MLP, constraints=[*PINS, MaxReshards(60)])
    check = check_bound(held.to_dict())
    assert check.status is Status.OK
    assert check.lines[0].endswith("counts of reshards left out")


def test_a_bound_with_a_count_is_not_proved_without_it() -> None:
    free = planned(step, *ONE_LAYER)
    held = planned(step, *ONE_LAYER, constraints=[MaxReshards(1)])
    data = held.to_dict()
    assert held.bound_s > free.objective_s and check_bound(data).status is Status.OK
    data["certificate"]["counts"] = False
    assert check_bound(data).status is Status.FAILED


@pytest.mark.parametrize("prices", [[], [0], [10**12], [-5], [1, 1]], ids=str)
def test_a_bound_is_not_proved_at_other_prices(prices: list[int]) -> None:
    data = planned(step, *ONE_LAYER, constraints=[MaxReshards(1)]).to_dict()
    assert len(data["certificate"]["prices"]) == 1
    data["certificate"]["prices"] = prices
    assert check_bound(data).status is Status.FAILED


def test_a_lower_count_is_never_cheaper_and_none_is_cheaper_than_without() -> None:
    costs = [planned(step, *ONE_LAYER).objective_s]
    for limit in (3, 2, 1, 0):
        held = planned(step, *ONE_LAYER, constraints=[MaxReshards(limit)])
        assert reshards(held) <= limit and held.status == "optimal"
        assert check_bound(held.to_dict()).status is Status.OK
        costs.append(held.objective_s)
    assert costs[0] == costs[1] < costs[2] == costs[3] < costs[4]


def test_what_a_count_forbids_is_told_by_the_smallest_set_of_statements() -> None:
    stated = [Pin("x", '[{"x"}, {}]'), Pin("out", '[{"y"}, {}]'), Pin("w", "[{}, {}]"), MaxReshards(0)]
    with pytest.raises(InfeasibleError) as caught:
        planned(lambda x, w: (x, w @ w)[0], f32(64, 64), f32(64, 64), constraints=stated, carry=False)
    assert len(caught.value.conflict) == 3 and "at most 0 reshards" in caught.value.conflict[-1]


def test_stages_that_keep_a_count_are_those_without_it() -> None:
    stages = [Pin("x", '[{"x", ?}, {?}]'), Pin("w1", '[{?}, {"y", ?}]', priority=1)]
    free = planned(mlp, *MLP, constraints=stages)
    held = planned(mlp, *MLP, constraints=[*stages, MaxReshards(60)])
    assert held.schedule == free.schedule and held.stages == _told(free)
    assert check_bound(held.to_dict()).status is Status.OK


def _told(free: Plan) -> Any:
    """The stages of a plan, whose certificates are of networks without counts."""
    proofs = [stage.certificate and stage.certificate.model_copy(update={"counts": False}) for stage in free.stages]
    return tuple(s.model_copy(update={"certificate": p}) for s, p in zip(free.stages, proofs, strict=True))


def test_a_stage_whose_own_optimum_breaks_a_count_is_decided_with_it() -> None:
    model = build_model(ask(trace(step, *ONE_LAYER).program, **ASKED, constraints=[MaxReshards(0)]).problem)
    free = decide(build_model(model.problem.leaving_counts_out()))
    few = decide(model)
    assert not has_few_reshards(model.problem, free.schedule)
    assert keeps_counts(model.problem, few)
    assert not keeps_counts(model.problem, replace(few, on_the_way=(free.schedule,)))


def test_a_start_that_breaks_a_count_is_no_plan() -> None:
    model = build_model(ask(trace(step, *ONE_LAYER).program, **ASKED, constraints=[MaxReshards(0)]).problem)
    free = decide(build_model(model.problem.leaving_counts_out()))
    start = assignment_of(model.collected, model.encoded, model.repeats, free.schedule)
    assert start is not None and best_start(model, [start], None) is None


def test_a_baseline_that_breaks_a_count_has_the_price_that_it_has_with_it() -> None:
    asked = {
        "baselines": ["data", "fsdp"], "roles": {"w1": ["embed", "mlp"], "w2": ["mlp", "embed"], "x": ["batch", None]},
    }  # fmt: skip
    free = planned(mlp, *MLP, **asked)
    limit = reshards(free)
    held = planned(mlp, *MLP, **asked, constraints=[MaxReshards(limit)])
    assert held.schedule == free.schedule
    before, after = ({row.name: row.objective_s for row in found.baselines} for found in (free, held))
    assert before["data"] == after["data"]
    assert before["fsdp"] is not None and (after["fsdp"] is None or after["fsdp"] > before["fsdp"])


# -- judged by search that knows no prices -------------------------------------------------------------------------


def counted_model(random: Random, most_ops: int, axis: str | None = None) -> Model:
    """That of a random program with a count, and with pins that make plans reshard."""
    program, mesh = random_program(random, most_ops, (2, 4)), Mesh.from_dict({"x": 2})
    pinned = [name for name in (*program.input_names, *program.output_names) if random.random() < 0.6]
    ranks = {
        name: len(program.type_of(v).shape) for name, v in zip(program.input_names, program.body.args, strict=True)
    }
    ranks |= {n: len(program.type_of(v).shape) for n, v in zip(program.output_names, program.body.results, strict=True)}
    pins = [Pin(name, random.choice(LYING[ranks[name]])) for name in pinned]
    stated = match_restrictions([MaxReshards(random.randint(0, 2), axis=axis)], program, mesh)
    held = match_pins(pins, program, mesh)
    return build_model(Problem.make(program, mesh, machine({"x": 2}), pins=held, restrictions=stated, sub_axes={}))


LYING = {0: ["[]"], 1: ['[{"x"}]', "[{}]"], 2: ['[{"x"}, {}]', '[{}, {"x"}]', "[{}, {}]"]}


def cheapest_of_all(model: Model, most: int) -> tuple[int, int | None] | None:
    """Ticks of the cheapest assignment of the network without counts, and of the cheapest that keeps them (None where
    none does); None where there are too many.

    All assignments by cost, and the first that decodes to a schedule with few reshards.
    """
    free = build_model(replace(model.problem.leaving_counts_out(), share_repeats=False), tick_s=model.encoded.tick_s)
    network = free.with_limit(None)
    if prod(len(c) for c in network.costs) > most:
        return None
    found = sorted(
        (cost, assignment)
        for assignment in product(*(range(len(c)) for c in network.costs))
        if (cost := evaluate(network, assignment).cost) is not None
    )
    few = (cost for cost, assignment in found if has_few_reshards(model.problem, free.schedule(assignment)))
    return found[0][0], next(few, None)


def test_the_optimum_with_a_count_is_that_of_all_assignments() -> None:
    judged = binding = refused = 0
    for seed in range(150):
        try:
            model = counted_model(Random(seed), 2)
        except InfeasibleError:  # the pins contradict each other
            continue
        best = cheapest_of_all(model, 2_000)
        if best is None:
            continue
        if best[1] is None:
            refused += 1
            with pytest.raises(InfeasibleError):
                decide(model)
            continue
        found = decide(model)
        start = assignment_of(model.collected, model.encoded, model.repeats, found.schedule)
        assert start is not None
        assert found.status == "optimal" and evaluate(model.with_limit(None), start).cost == best[1], seed
        judged, binding = judged + 1, binding + (best[0] < best[1])
    assert judged >= 20 and binding >= 3 and refused >= 3


def test_the_optimum_with_a_count_is_that_of_exact_search_with_rows() -> None:
    judged = refused = 0
    for seed in range(60):
        random = Random(seed)
        try:
            model = counted_model(random, 4, random.choice([None, "x"]))
        except InfeasibleError:
            continue
        exact = solve(model.with_limit(None))
        if exact.status == "infeasible":
            refused += 1
            with pytest.raises(InfeasibleError):
                decide(model)
            continue
        found = decide(model)
        assert exact.status == found.status == "optimal" and exact.cost is not None
        assert found.objective_s == pytest.approx(exact.cost * model.encoded.tick_s, abs=2 * found.rounding_s), seed
        judged += 1
    assert judged >= 25 and refused >= 3
