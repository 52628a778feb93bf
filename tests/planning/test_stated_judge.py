"""Exhaustive search judges statements: pins, groups, priorities and memory limits on random small programs."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from every_plan import TooManyPlansError, cheapest
from plan_cases import machine
from test_brute_force import random_pins, random_program

from autoshard.constraints import MatchedPin, match_pins
from autoshard.constraints.groups import MatchedGroup, Member
from autoshard.errors import InfeasibleError
from autoshard.formulation.fixed import Fixed
from autoshard.formulation.pieces import part_of, pieces_of
from autoshard.planning import Model, Problem, answer, build_model, decide, decide_staged, stated_stages
from autoshard.program.program import Program
from autoshard.sharding.mesh import Mesh
from autoshard.solver.network import evaluate

MOST = 400_000
"""Plans of one program that exhaustive search tries."""


def random_groups(random: Random, program: Program) -> list[MatchedGroup]:
    """Up to two groups of inputs and outputs of one shape."""
    members: dict[tuple[int, ...], list[Member]] = {}
    for value in program.body.args:
        members.setdefault(program.type_of(value).shape, []).append(("value", value))
    for slot, value in enumerate(program.body.results):
        members.setdefault(program.type_of(value).shape, []).append(("output", slot))
    out = []
    for same in members.values():
        if len(same) >= 2 and random.random() < 0.5:
            chosen = sorted(random.sample(same, random.randint(2, min(3, len(same)))))
            values = tuple(i for kind, i in chosen if kind == "value")
            slots = tuple(i for kind, i in chosen if kind == "output")
            out.append(MatchedGroup(("a group",), values, slots))
    return out[:2]


def random_problem(seed: int, most_ops: int, levels: Sequence[int]) -> tuple[Problem, Random]:
    random = Random(seed)
    axes = random.choice([{"x": 2}, {"x": 2, "y": 2}])
    program = random_program(random, most_ops if len(axes) == 1 else max(2, most_ops - 3))
    mesh = Mesh.from_dict(axes)
    pins = [replace(pin, priority=random.choice(levels)) for pin in random_pins(random, program, axes)]
    matched = match_pins(pins, program, mesh, compare=False)
    profile = random.choice(["tpu_v5e", "tpu_v5p", "h100"])
    groups = random_groups(random, program)
    made = Problem.make(program, mesh, machine(axes, profile), pins=matched, groups=groups, sub_axes={})
    return made, random


def exhaustive(model: Model, pins: Sequence[MatchedPin], **options: Any) -> float:
    problem = model.problem
    groups = [group.members for group in problem.groups]
    return cheapest(
        problem.program, problem.mesh, model.prices, model.fusion, model.liveness, pins, groups=groups, most=MOST,
        **options,
    ).seconds  # fmt: skip


def fixed_of(stage: Any, mesh: Any) -> Fixed:
    """The placements of a stage as plan.json tells them."""

    def read(told: dict[str, list[list[str]]]) -> dict[int, tuple[tuple[int, ...], ...]]:
        return {int(key): tuple(tuple(map(mesh.names.index, atoms)) for atoms in cut) for key, cut in told.items()}

    placed = stage.placed
    return Fixed(read(placed["ops"]), read(placed["inputs"]), read(placed["shared"]), read(placed["outputs"]))


def judge(seed: int, most_ops: int, levels: Sequence[int] = (0, 0, 1, 2)) -> str:
    """Plan under pins and groups with priorities, and search exhaustively, stage for stage."""
    problem, _ = random_problem(seed, most_ops, levels)
    bare = build_model(replace(problem, pins=(), groups=()))
    bare = replace(bare, problem=problem)
    try:
        best = exhaustive(bare, problem.pins)
    except TooManyPlansError:
        return "too many"
    if best == float("inf"):
        with pytest.raises(InfeasibleError) as caught:
            decide_staged(problem)
        assert caught.value.conflict
        return "infeasible"
    decision = decide_staged(problem)
    slack = 4 * decision.rounding_s + 1e-9 * best
    if not decision.stages:
        assert decision.status == "optimal"
        assert abs(decision.objective_s - best) <= slack, seed
        return "free"
    joint = decision.objective_s if decision.joint is None else decision.joint.cost_s
    assert abs(joint - best) <= slack, seed
    if len(decision.stages) == 1:
        return "one stage"
    fixed: list[Fixed] = []
    plans = stated_stages(problem)
    dropped: set[tuple[str, int, int, str]] = set()
    for number, (stage, plan) in enumerate(zip(decision.stages, plans, strict=True)):
        last = number == len(plans) - 1
        dropped |= {
            (entry["what"], int(key), entry["on"], entry["axes"][-1])
            for entry in stage.relaxed
            for key in entry["keys"]
            if entry["source"] == "propagated"
        }
        names = problem.mesh.names
        kept = [p for p in pieces_of(plan.given) if (p.what, p.key, p.index, names[p.atom]) not in dropped]
        fixed.append(part_of(plan.given, kept))
        pins = problem.pins if last else plan.pins
        try:
            found = exhaustive(bare, pins, fixed=fixed)
            assert abs(stage.cost_s - found) <= slack, (seed, number)
            # the plan of a later stage may cost less by what is rounded; the bound was rounded with its own stage
            assert stage.status == "optimal" or stage.cost_s - stage.bound_s <= 2 * decision.rounding_s
            assert stage.bound_s <= found + slack
            # an optimum has what the stage fixed
            fixed.append(fixed_of(stage, problem.mesh))
            if not last:
                assert abs(exhaustive(bare, pins, fixed=fixed) - found) <= slack, (seed, number)
        except TooManyPlansError:
            return "too many"
    assert abs(decision.objective_s - decision.stages[-1].cost_s) <= slack
    return "stages"


def judge_memory(seed: int) -> str:
    """Every assignment of a tiny program is simulated; what planning says under a limit must agree."""
    problem, random = random_problem(seed, 3, (0,))
    try:
        base = build_model(problem)
    except InfeasibleError:
        return "infeasible"
    network = base.repeats.network
    if int(np.prod([float(len(c)) for c in network.costs])) > 1_500:
        return "too many"
    plans = []
    for choice in itertools.product(*(range(len(c)) for c in network.costs)):
        found = evaluate(network, choice)
        if found.cost is not None:
            plans.append((base.simulate(base.schedule(choice)).peak_bytes, found.cost * base.encoded.tick_s))
    if not plans:
        return "infeasible"
    peaks = sorted({held for held, _ in plans})
    limit = random.choice([*peaks[:4], peaks[0] - 1])
    fitting = [cost for held, cost in plans if held <= limit]
    model = build_model(replace(problem, memory_limit=limit))
    if not fitting:
        with pytest.raises(InfeasibleError) as caught:
            answer(model)
        assert caught.value.conflict
        return "no room"
    decision = decide(model)
    slack = 2 * decision.rounding_s
    assert decision.memory.peak_bytes <= limit, seed
    assert decision.bound_s - slack <= min(fitting), seed
    assert abs(decision.objective_s - min(fitting)) <= slack, (seed, decision.status)
    return decision.status


def test_statements_with_priorities_agree_with_exhaustive_search() -> None:
    found = [judge(seed, 5) for seed in range(40)]
    assert found.count("stages") >= 5
    assert found.count("too many") <= 10


def test_axes_alike_that_are_cheaper_in_the_other_order_agree_with_exhaustive_search() -> None:
    assert judge(100_026, 5) == "stages"


def test_memory_limits_agree_with_exhaustive_search() -> None:
    found = [judge_memory(seed) for seed in range(60)]
    assert found.count("no room") >= 3
    assert found.count("optimal") >= 20


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(8))
def test_2000_programs_agree_with_exhaustive_search(part: int) -> None:
    found = [judge(100_000 + 200 * part + k, 8 if k % 4 == 0 else 5) for k in range(200)]
    assert found.count("too many") <= 60
    held = [judge_memory(200_000 + 160 * part + k) for k in range(160)]
    assert len(found) + len(held) - found.count("too many") - held.count("too many") >= 230
