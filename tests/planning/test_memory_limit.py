"""A memory limit holds at every point of the simulated program, or there is no plan."""

import importlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plan_cases import Pin, f32, gradient, mlp, model_of, problem, program_of, traced
from test_brute_force import random_program

from autoshard import plan, solver
from autoshard.costs.memory import simulate
from autoshard.errors import InfeasibleError, InputError, NotFoundError, OutOfTimeError
from autoshard.planning import answer, build_model, decide
from autoshard.program.program import Program
from autoshard.search_options import SearchOptions
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, evaluate
from autoshard.solver.solution import Solution, Stopped

WIDE = (f32(64, 128), f32(128, 64), f32(32, 64))


QUICK = SearchOptions(effort=0.1)
"""For what holds of any plan, however close to the bound it is."""


def peak(
    program: Program, limit: int | None = None, pins: tuple[Pin, ...] = (), options: SearchOptions | None = None
) -> int:
    model = build_model(problem(program, {"x": 2, "y": 2}, memory_limit=limit, pins=pins))
    return decide(model, options).memory.peak_bytes


def least_peak(program: Program) -> int:
    """A limit that holds and below which nothing is found, by bisection."""
    low, high = 0, peak(program)
    while high - low > 64:
        middle = (low + high) // 2
        try:
            high = peak(program, middle)
        except (InfeasibleError, NotFoundError):
            low = middle
    return high


def test_limits_hold_down_to_the_smallest_peak() -> None:
    program = program_of(gradient, *WIDE)
    pins = tuple(Pin(n, "[{}, {}]") for n in ("w1", "w2"))
    free = peak(program, pins=pins)
    least = 4 * (64 * 128 + 128 * 64)  # the pinned arguments alone
    held = []
    for limit in (free, free - (free - least) // 6):
        try:
            held.append((limit, peak(program, limit, pins, QUICK)))
        except (InfeasibleError, NotFoundError):
            break
    assert len(held) == 2
    assert all(found <= limit for limit, found in held)


def test_a_limit_that_the_free_plan_keeps_changes_nothing() -> None:
    program = traced("gradient").program
    free = decide(build_model(problem(program, {"x": 2})))
    tight = decide(build_model(problem(program, {"x": 2}, memory_limit=free.memory.peak_bytes)))
    assert tight.schedule == free.schedule
    assert (tight.objective_s, tight.bound_s, tight.status) == (free.objective_s, free.bound_s, free.status)


@pytest.mark.parametrize("function", [mlp, pytest.param(gradient, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_tighter_limit_never_costs_less(function: Callable[..., Any]) -> None:
    program = program_of(function, *WIDE)
    free = decide(build_model(problem(program, {"x": 2, "y": 2})))
    costs = [free.objective_s]
    for share in (0.95, 0.9, 0.85):
        try:
            limit = int(free.memory.peak_bytes * share)
            costs.append(decide(build_model(problem(program, {"x": 2, "y": 2}, memory_limit=limit))).objective_s)
        except (InfeasibleError, NotFoundError):
            break
    assert len(costs) > 1 and costs == sorted(costs)


def test_too_small_a_limit_says_what_cannot_hold_and_where() -> None:
    with pytest.raises(
        InfeasibleError, match=r"^no plan exists within the memory limit of 100 bytes per device \(proved\): at least"
    ):
        answer(build_model(problem(traced("gradient").program, {"x": 2}, memory_limit=100)))
    with pytest.raises(InfeasibleError) as caught:
        answer(build_model(problem(traced("gradient").program, {"x": 2}, memory_limit=100)))
    text = str(caught.value)
    assert "100" in text and "bytes" in text and "node " not in text


def test_a_limit_below_one_byte_is_refused() -> None:
    for limit in (0, -5):
        with pytest.raises(InputError, match=f"memory_limit is {limit}; give a positive number of bytes per device"):
            plan(lambda x: x, f32(4), mesh={"x": 2}, hardware="tpu_v5e", memory_limit=limit)


def test_the_bound_under_a_limit_holds_for_the_plan() -> None:
    program = program_of(gradient, *WIDE)
    free = peak(program)
    decision = decide(build_model(problem(program, {"x": 2, "y": 2}, memory_limit=int(0.9 * free))), QUICK)
    assert 0 < decision.bound_s <= decision.objective_s
    assert decision.gap == pytest.approx((decision.objective_s - decision.bound_s) / decision.objective_s)


def test_a_donated_argument_makes_room() -> None:
    def step(w: jax.Array, g: jax.Array) -> jax.Array:
        s = jnp.sort(g)
        return w - 0.1 * s, s

    kept, donated = (program_of(step, f32(64, 64), f32(64, 64), donate_argnums=d) for d in ((), (0,)))
    assert peak(donated) < peak(kept)
    assert peak(donated, peak(donated)) < peak(kept)


def judge(seed: int) -> str:
    """Every assignment of a tiny program is simulated; what the planner says under a limit must agree."""
    random = Random(seed)
    program = random_program(random, 2)
    base = build_model(problem(program, {"x": 2}))
    network = base.repeats.network
    count = 1
    for costs in network.costs:
        count *= len(costs)
    if count > 2_000:
        return "too many"
    plans = []
    for choice in itertools.product(*(range(len(c)) for c in network.costs)):
        found = evaluate(network, choice)
        if found.cost is not None:
            held = simulate(program, base.schedule(choice), base.liveness).peak_bytes
            plans.append((held, found.cost * base.encoded.tick_s))
    peaks = sorted({held for held, _ in plans})
    limit = random.choice([*peaks, peaks[0] - 1])
    fitting = [cost for held, cost in plans if held <= limit]
    model = build_model(problem(program, {"x": 2}, memory_limit=limit))
    if not fitting:
        with pytest.raises(InfeasibleError):
            decide(model)
        return "infeasible"
    decision = decide(model)
    slack = 2 * decision.rounding_s
    assert decision.memory.peak_bytes <= limit
    assert decision.bound_s - slack <= min(fitting) <= decision.objective_s + slack
    if decision.status == "optimal":
        assert decision.objective_s <= min(fitting) + slack
    return decision.status


def test_plans_under_a_limit_agree_with_exhaustive_search() -> None:
    found = [judge(seed) for seed in range(100)]
    assert found.count("infeasible") >= 5
    assert found.count("optimal") >= 60
    assert found.count("feasible") <= 3  # private copies that the network does not see


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_plans_under_a_limit_agree_with_exhaustive_search() -> None:
    found = [judge(seed) for seed in range(1_000, 2_000)]
    assert found.count("feasible") <= 0.03 * len(found)


def test_bisection_finds_limits_that_hold() -> None:
    program = traced("mlp").program
    assert model_of("mlp", {"x": 2})
    least = least_peak(program)
    assert peak(program, least) <= least
    with pytest.raises((InfeasibleError, NotFoundError)):
        peak(program, least // 2)


def flipped(costs: np.ndarray) -> np.ndarray:
    """The dearest becomes the cheapest; what is forbidden stays so."""
    possible = costs < IMPOSSIBLE
    return np.where(possible, costs.max(initial=0, where=possible) - costs, costs)


def test_a_plan_within_a_limit_never_costs_more_than_a_start_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the searches come back with: here with their dearest assignment that keeps the limit."""
    program = program_of(gradient, *WIDE)
    limit = int(0.9 * peak(program))
    monkeypatch.setattr("autoshard.planning.model.axis_orders", lambda problem: ())  # with both dear ones are best
    model = build_model(problem(program, {"x": 2, "y": 2}, memory_limit=limit))
    whole, found_first = solver.solve, []

    def recorded(network: CostNetwork, **options: Any) -> Solution:
        found_first.append(whole(network, **options))
        return found_first[-1]

    monkeypatch.setattr(solver, "solve", recorded)
    start = decide(model, QUICK)

    def dear(network: CostNetwork, **options: Any) -> Solution:
        found = whole(network, **options)
        if network.usage_limit is None or found.assignment is None:
            return found
        costs, edges = [flipped(c) for c in network.costs], [replace(e, costs=flipped(e.costs)) for e in network.edges]
        worst = whole(replace(network, costs=tuple(costs), edges=tuple(edges))).assignment
        assert worst is not None
        return replace(found, assignment=worst, cost=evaluate(network, worst).cost, status="feasible")

    monkeypatch.setattr(solver, "solve", dear)
    monkeypatch.setattr("autoshard.planning.fitting.annealed", lambda *given: given[-1])  # which is no such search
    assert decide(model, QUICK).objective_s > start.objective_s
    fitting = found_first[-1].assignment
    assert fitting is not None
    kept = decide(model, QUICK, starts=[fitting[: model.repeats.network.n_nodes]])
    assert kept.objective_s == pytest.approx(start.objective_s)
    assert any("the best named baseline that fits" in note for note in kept.notes)


def test_a_search_ended_by_the_wall_clock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = solver.solve

    def slow_first(network: CostNetwork, **options: Any) -> Solution:
        found = whole(network, **options)
        return replace(found, stats=found.stats | {"stopped": Stopped.TIME}) if network.usage_limit is None else found

    program = program_of(gradient, *WIDE)
    limit = int(0.9 * peak(program))
    monkeypatch.setattr(solver, "solve", slow_first)
    notes = decide(build_model(problem(program, {"x": 2, "y": 2}, memory_limit=limit)), QUICK).notes
    assert "one of its searches was ended by the wall clock: another run may give another plan" in notes


def test_time_that_ends_while_memory_is_worked_out_finds_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("autoshard.planning.decide")._Run, "_check", _over)
    with pytest.raises(OutOfTimeError, match=r"was found in the time given, and it is not proved that none exists"):
        peak(program_of(gradient, *WIDE), 100_000)


def test_time_that_ends_between_rounds_gives_the_plan_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    run = importlib.import_module("autoshard.planning.decide")._Run

    def first_alone(self: Any, limit: int, free: Any) -> None:
        self.known = self._first(limit, free)
        _over()

    monkeypatch.setattr(run, "_in_rounds", first_alone)
    program = program_of(gradient, *WIDE)
    limit = int(0.9 * peak(program))
    found = decide(build_model(problem(program, {"x": 2, "y": 2}, memory_limit=limit)), QUICK)
    assert found.memory.peak_bytes <= limit
    assert "the run was stopped by the time limit" in found.notes


def _over(*_: object) -> None:
    raise OutOfTimeError("the time limit was reached")
