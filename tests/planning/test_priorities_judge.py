"""Every plan of small staged programs judges what priorities keep, drop and cost, with and without memory limits."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from every_assignment import EveryAssignment, TooManyError, compare, spots, spots_of
from plan_cases import machine
from test_brute_force import random_pins, random_program
from test_stated_judge import random_groups

from autoshard.constraints import Pin, match_pins
from autoshard.errors import InfeasibleError, NotFoundError
from autoshard.planning import Problem, decide_staged, stated_stages
from autoshard.sharding.mesh import Mesh

MOST = 20_000
"""Plans of one program that are listed."""
TIGHT = 0.7
"""The part of the problems that have a memory limit."""


def staged_problem(seed: int) -> tuple[Problem, Random] | None:
    """A small program with pins of two or three priorities; None where chance made no two of them."""
    random = Random(seed)
    axes = random.choice([{"x": 2}, {"x": 2}, {"x": 2, "y": 2}])
    program = random_program(random, random.choice((2, 3, 4, 5)) if len(axes) == 1 else random.choice((1, 2)))
    pins: dict[str, Pin] = {}
    for _ in range(6):
        for pin in random_pins(random, program, axes):
            pins.setdefault(pin.pattern, replace(pin, priority=random.choice((0, 1, 2))))
    if len({pin.priority for pin in pins.values()}) < 2:
        return None
    mesh = Mesh.from_dict(axes)
    profile = random.choice(["tpu_v5e", "tpu_v5p", "h100"])
    groups = random_groups(random, program) if random.random() < 0.3 else []
    matched = match_pins(list(pins.values()), program, mesh, compare=False)
    made = Problem.make(program, mesh, machine(axes, profile), pins=matched, groups=groups, sub_axes={})
    return made, random


def judge(seed: int, most: int = MOST) -> str:
    made = staged_problem(seed)
    if made is None:
        return "one priority"
    problem, random = made
    try:
        plans = EveryAssignment(problem, most)
    except TooManyError:
        return "too many"
    allowed = np.flatnonzero(plans.under(problem.pins)).tolist()
    if not allowed:
        with pytest.raises(InfeasibleError):
            decide_staged(problem)
        return "contradiction"
    limit = None
    if random.random() < TIGHT:
        peaks = sorted({plans.peak(row) for row in random.sample(allowed, min(len(allowed), 1_000))})
        limit = peaks[0] if random.random() < 0.7 else random.choice(peaks)
    problem = replace(problem, memory_limit=limit)
    decision = decide_staged(problem)
    if len(decision.stages) < 2:
        return "one stage"
    compare(
        problem, decision.stages, stated_stages(problem), most, 4 * decision.rounding_s + 1e-9 * decision.objective_s
    )
    relaxed = [entry for stage in decision.stages for entry in stage.relaxed if entry["source"] == "propagated"]
    if any(entry["why"] == "memory" for entry in relaxed):
        return "relaxed by memory"
    return "relaxed" if relaxed else "staged"


def count(found: Sequence[str], *kinds: str) -> int:
    return sum(found.count(kind) for kind in kinds)


def test_what_stages_keep_and_cost_is_what_every_plan_says() -> None:
    found = [judge(seed) for seed in range(120)]
    assert count(found, "staged", "relaxed", "relaxed by memory") >= 50
    assert count(found, "relaxed") >= 2
    assert count(found, "relaxed by memory") >= 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_500_staged_problems_keep_and_cost_is_what_every_plan_says() -> None:
    found = [judge(seed, 100_000) for seed in range(50_000, 51_000)]
    assert count(found, "staged", "relaxed", "relaxed by memory") >= 500
    assert count(found, "relaxed by memory") >= 15


def told(problem: Problem, limit: int | None) -> list[tuple[tuple[int, ...], float, object]] | None:
    """Of each stage: which of the propagated placements are kept, what it costs, and what it placed."""
    try:
        decision = decide_staged(replace(problem, memory_limit=limit))
    except (InfeasibleError, NotFoundError):
        return None
    if len(decision.stages) < 2:
        return None
    out, gone = [], set()
    for stage, plan in zip(decision.stages, stated_stages(problem), strict=True):
        for entry in stage.relaxed:
            if entry["source"] == "propagated":
                gone |= set(spots_of(entry, problem))
        kept = tuple(int(spot not in gone) for spot in spots(plan.given))
        chosen = [entry for entry in stage.relaxed if entry["source"] == "chosen"]
        out.append((kept, stage.cost_s, (stage.placed, chosen)))
    return out


def test_where_a_lower_limit_first_makes_a_difference_less_is_kept_or_it_costs_more() -> None:
    """Later stages build on that difference, and may then cost less."""
    compared = 0
    for seed in range(40):
        made = staged_problem(seed)
        if made is None:
            continue
        problem, _ = made
        free = told(problem, None)
        if free is None:
            continue
        peak = decide_staged(problem).memory.peak_bytes
        before = free
        for percent in (95, 85, 75, 65, 55):
            now = told(problem, peak * percent // 100)
            if now is None:
                break
            for (kept, cost, placed), (less, more, other) in zip(before, now, strict=True):
                assert less <= kept, seed
                if less < kept:
                    break
                assert more >= cost * (1 - 1e-6), seed
                if more > cost * (1 + 1e-6) or other != placed:
                    break
            compared += 1
            before = now
    assert compared >= 15
