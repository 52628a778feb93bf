"""Laws of memory limits, on small random programs: the network holds what the simulation holds, and limits are kept."""

from functools import cache
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handed_on_cases import rotated, swapped, turned, used_up
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_cases import Pin, f32, gradient, looped, mlp, partial_sums, problem, program_of, shared_value
from test_brute_force import random_pins, random_program

from autoshard.deadline import Deadline
from autoshard.errors import InfeasibleError, OutOfTimeError
from autoshard.formulation.assign import assignment_of
from autoshard.planning import Model, build_model, decide
from autoshard.planning.decision import Decision
from autoshard.program.program import Program
from autoshard.program.schedule import PROGRAM, Use
from autoshard.search_options import SearchOptions
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, evaluate, usage_profile

AXES = {"x": 2, "y": 2}
MACHINES = ("tpu_v5e", "h100")
"""Of both rules of memory."""
SMALL = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
WIDE = (f32(64, 128), f32(128, 64), f32(32, 64))


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "mlp": (mlp, WIDE),
    "gradient": (gradient, WIDE),
    "shared_value": (shared_value, (f32(64, 64), f32(64, 64), f32(32, 64))),
    "partial_sums": (partial_sums, (f32(64, 64), f32(64, 64), f32(32, 64), f32(32, 64))),
    "looped": (looped, (f32(4, 64, 64), f32(32, 64))),
    "rotated": (rotated, (f32(32, 64), f32(32, 64), f32(64, 64))),
    "turned": (turned, (f32(4, 16, 4, 8), f32(4, 16, 4, 8), f32(4, 4, 4, 8))),
}


@cache
def model_of_named(name: str, machine: str = "tpu_v5e") -> Model:
    function, specs = PROGRAMS[name]
    return build_model(problem(program_of(function, *specs), AXES, profile=machine))


def drawn(network: CostNetwork, random: Random) -> list[int] | None:
    """An assignment that the network allows, or None where a few tries meet dead ends."""
    near: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(network.n_nodes)]
    for edge in network.edges:
        allowed = edge.costs < IMPOSSIBLE
        near[edge.first].append((edge.second, allowed))
        near[edge.second].append((edge.first, allowed.T))
    for _ in range(20):
        chosen: dict[int, int] = {}
        for node in random.sample(range(network.n_nodes), network.n_nodes):
            left = network.costs[node] < IMPOSSIBLE
            for other, allowed in near[node]:
                if other in chosen:
                    left = left & allowed[:, chosen[other]]
            if not left.any():
                break
            chosen[node] = random.choice(np.flatnonzero(left).tolist())
        if len(chosen) == network.n_nodes:
            return [chosen[node] for node in range(network.n_nodes)]
    return None


def assert_the_same_bytes(model: Model, draws: int) -> None:
    memory, random = model.memory, Random(7)
    chosen = memory.all_of_them()
    network = memory.network(chosen)
    for _ in range(draws):
        assignment = drawn(model.repeats.network, random)
        if assignment is None:
            continue
        whole = memory.extended(assignment, chosen)
        assert evaluate(network, whole).cost == evaluate(model.repeats.network, assignment).cost
        peak = max((held for _, held in usage_profile(network, whole)), default=0)
        assert peak == model.simulate(model.schedule(assignment)).peak_bytes


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_network_and_simulation_say_the_same_bytes(name: str, machine: str) -> None:
    assert_the_same_bytes(model_of_named(name, machine), 40)


def momentum(w: Any, m: Any, x: Any) -> Any:
    m = 0.9 * m + x.T @ (x @ w)
    return w - 0.1 * m, m


def read_after(w: Any, m: Any, x: Any) -> Any:
    """The new weight is an output and read once more, so it may have a form that both share."""
    m = 0.9 * m + x.T @ (x @ w)
    w = w - 0.1 * m
    return w, m, x @ w


def handed_on(w: Any, m: Any, x: Any) -> Any:
    """A donated array is handed on as it is, and another output takes its place."""
    return m, w + m, m * x.sum()


def summed_anew(w: Any, m: Any, x: Any) -> Any:
    """What takes the place of a donated array is a partial sum, which is scattered as soon as it is made."""
    return x.T @ (x @ w), jnp.tanh(m)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("f", [momentum, read_after, handed_on, swapped, used_up, summed_anew])
def test_network_and_simulation_say_the_same_bytes_of_donated_state(f: Any, machine: str) -> None:
    """A weight that is gathered over the donated one lies beside it, where decisions have it so."""
    program = program_of(f, f32(32, 64), f32(32, 64), f32(16, 32), donate_argnums=(0, 1))
    assert_the_same_bytes(build_model(problem(program, AXES, profile=machine)), 60)


def returned_twice(w: Any, m: Any, x: Any) -> Any:
    """Arrays that are handed back in two places, an input and a result, and read once more."""
    made = x @ w
    return made, m, m, made, made.sum() + m.sum()


@pytest.mark.parametrize("donated", [(), (1,)], ids=["not donated", "donated"])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("f", [returned_twice, handed_on])
def test_network_and_simulation_say_the_same_bytes_of_what_is_copied_to_be_returned(
    f: Any, machine: str, donated: tuple[int, ...]
) -> None:
    program = program_of(f, f32(32, 64), f32(32, 64), f32(16, 32), donate_argnums=donated)
    assert_the_same_bytes(build_model(problem(program, AXES, profile=machine)), 60)


UNEVEN_PINS = {
    "all of the rows": (Pin("w", '[{"x", "y"}, {}]'),),
    "what divides beside what does not": (Pin("w", '[{?}, {"x", ?}]'), Pin("m", '[{"y", ?}, {?}]')),
    "the other operand": (Pin("x", '[{?}, {"y"}]'), Pin("w", '[{"x", ?}, {?}]')),
}


@pytest.mark.parametrize("donated", [(), (0, 1)], ids=["not donated", "donated"])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("pins", UNEVEN_PINS.values(), ids=UNEVEN_PINS)
@pytest.mark.parametrize("f", [momentum, read_after, handed_on, swapped, used_up, summed_anew])
def test_network_and_simulation_say_the_same_bytes_of_uneven_inputs(
    f: Any, pins: tuple[Pin, ...], machine: str, donated: tuple[int, ...]
) -> None:
    """JAX has such inputs without the axes that do not divide them, and their blocks are cut out of that."""
    program = program_of(f, f32(33, 64), f32(33, 64), f32(16, 33), donate_argnums=donated)
    model = build_model(problem(program, AXES, profile=machine, pins=pins))
    assert model.collected.stored
    assert_the_same_bytes(model, 20)


class Enough(Exception):
    """Somebody wants no more."""


def test_working_out_what_is_held_can_be_stopped_and_begun_again() -> None:
    model, calls = build_model(model_of_named("mlp").problem), 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise Enough

    with pytest.raises(Enough):
        model.work_out_memory(check)
    assert model.work_out_memory(check) is model.memory
    seen = calls
    assert_the_same_bytes(model, 10)
    assert calls == seen, "it is asked only while it is worked out"


def tight_mlp() -> tuple[Model, int]:
    """A model within less than its cheapest plan holds, and that limit."""
    program = program_of(mlp, *WIDE)
    limit = decide(build_model(problem(program, AXES))).memory.peak_bytes - 1
    return build_model(problem(program, AXES, memory_limit=limit)), limit


def test_making_the_network_of_all_moments_can_be_stopped() -> None:
    """In large programs it takes longer than a time limit may have left."""
    model, limit = tight_mlp()
    memory = model.memory
    model.within(limit, memory.all_of_them())  # what it needs is known now: what is left is to put it together

    def check() -> None:
        raise Enough

    memory.q.check = check
    with pytest.raises(Enough):
        model.within(limit, memory.all_of_them())


def too_late(model: Model, check: Any) -> Any:
    check()
    raise AssertionError("nobody was asked whether there is time left")


def test_a_time_limit_that_passes_meanwhile_gives_the_plan_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    model, limit = tight_mlp()
    start = assignment_of(model.collected, model.encoded, model.repeats, decide(model).schedule)
    monkeypatch.setattr(Model, "work_out_memory", too_late)
    over = SearchOptions(deadline=Deadline.after(0))
    decision = decide(model, over, starts=[start])
    assert decision.memory.peak_bytes <= limit
    assert "the run was stopped by the time limit" in decision.notes
    with pytest.raises(OutOfTimeError, match="in the time given, and it is not proved that none exists"):
        decide(model, over)


@pytest.mark.parametrize("machine", MACHINES)
@SMALL
@given(seed=st.integers(0, 10_000))
def test_network_and_simulation_say_the_same_bytes_of_random_programs(machine: str, seed: int) -> None:
    assert_the_same_bytes(build_model(problem(random_program(Random(seed), 4), AXES, profile=machine)), 8)


@pytest.mark.parametrize("machine", MACHINES)
@SMALL
@given(seed=st.integers(0, 10_000))
def test_network_and_simulation_say_the_same_bytes_of_random_programs_with_uneven_inputs(
    machine: str, seed: int
) -> None:
    random = Random(seed)
    program = random_program(random, 4, sizes=(4, 7, 15))
    pins = random_pins(random, program, AXES, evenly=False)
    try:
        model = build_model(problem(program, AXES, profile=machine, pins=pins))
    except InfeasibleError:  # an output cannot be uneven, nor seven rows on four devices
        return
    assert_the_same_bytes(model, 8)


def attention_step(x: Any, wq: Any, wk: Any, wo: Any, target: Any) -> Any:
    """Softmax over scores of grouped heads, a loop over layers and gradients that wait: all rules of GPUs."""

    def loss(weights: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            wq, wk = w
            q, k = jnp.einsum("bsd,dkgh->bskgh", h, wq), jnp.einsum("bsd,dkh->bskh", h, wk)
            scores = jax.nn.softmax(jnp.einsum("bskgh,btkh->bkgst", q, k).astype(jnp.float32))
            mixed = jnp.einsum("bkgst,btkh->bskgh", scores.astype(h.dtype), k)
            return h + jnp.tanh(jnp.einsum("bskgh,dkgh->bsd", mixed, wq)), None

        out, _ = jax.lax.scan(layer, x, weights[:2])
        return jnp.square(out @ weights[2] - target).astype(jnp.float32).sum()

    gradients = jax.grad(loss)((wq, wk, wo))
    return [w - 0.1 * g for w, g in zip((wq, wk, wo), gradients, strict=True)]


@pytest.mark.parametrize("machine", MACHINES)
def test_network_and_simulation_say_the_same_bytes_of_attention(machine: str) -> None:
    bf16 = [(4, 8, 16), (2, 16, 2, 2, 4), (2, 16, 2, 4), (16, 8), (4, 8, 8)]
    specs = [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in bf16]
    program = program_of(attention_step, *specs, donate_argnums=(1, 2, 3))
    model = build_model(problem(program, AXES, profile=machine))
    assert (model.fusion.calls is None) == (machine == "tpu_v5e")
    if model.fusion.calls is not None:
        assert model.fusion.calls.late and model.fusion.calls.twice
    assert_the_same_bytes(model, 20)


def test_a_network_with_less_of_it_never_says_more() -> None:
    model, random = model_of_named("gradient"), Random(3)
    memory = model.memory
    everything = memory.all_of_them()
    for _ in range(10):
        assignment = drawn(model.repeats.network, random)
        if assignment is None:
            continue
        some = {k: everything[k] for k in everything if random.random() < 0.5}
        peak = max(held for _, held in usage_profile(memory.network(some), memory.extended(assignment, some)))
        assert peak <= model.simulate(model.schedule(assignment)).peak_bytes


def decided(program: Program, limit: int | None, pins: tuple[Pin, ...] = ()) -> Decision | None:
    """The decision, or None where it is proved that there is none."""
    try:
        return decide(build_model(problem(program, AXES, memory_limit=limit, pins=pins)))
    except InfeasibleError as error:
        if limit is not None and not (error.facts or {}).get("proved"):
            raise
        return None


def stated(program: Program, found: Decision) -> tuple[Pin, ...]:
    """All inputs and outputs as a plan has them, as pins."""
    mesh = found.schedule.mesh
    pins = [
        Pin(name, str(found.schedule.definitions[v].text(mesh)))
        for name, v in zip(program.input_names, program.body.args, strict=True)
    ]
    pins += [
        Pin(name, str(found.schedule.uses[Use(PROGRAM, k)].target.text(mesh)))
        for k, name in enumerate(program.output_names)
        if Use(PROGRAM, k) in found.schedule.uses
    ]
    return tuple(pins)


def limits(program: Program, random: Random) -> tuple[int, int]:
    """Two limits below the peak of the free plan, the larger one first."""
    free = decided(program, None)
    assert free is not None
    high, low = sorted((random.uniform(0.3, 1.0) for _ in range(2)), reverse=True)
    return int(high * free.memory.peak_bytes), int(low * free.memory.peak_bytes)


def no_cheaper(one: Decision | None, than: Decision | None) -> bool:
    """Whether the first does not undercut what is known of the second: nothing is cheaper than no plan at all."""
    if one is None:
        return True
    return than is not None and one.objective_s >= than.bound_s - 2 * (one.rounding_s + than.rounding_s)


@SMALL
@given(st.integers(0, 10_000))
def test_cost_never_falls_when_the_limit_falls(seed: int) -> None:
    random = Random(seed)
    program = random_program(random, 3)
    high, low = limits(program, random)
    assert no_cheaper(decided(program, low), decided(program, high))


@SMALL
@given(st.integers(0, 10_000))
def test_a_limit_equal_to_a_peak_that_was_found_holds(seed: int) -> None:
    random = Random(seed)
    program = random_program(random, 3)
    found = decided(program, limits(program, random)[0])
    if found is not None:
        again = decided(program, found.memory.peak_bytes)
        assert again is not None and no_cheaper(again, found) and no_cheaper(found, again)


@SMALL
@given(st.integers(0, 10_000))
def test_stating_a_plan_that_was_found_never_makes_it_better(seed: int) -> None:
    random = Random(seed)
    program = random_program(random, 3)
    limit = limits(program, random)[0]
    found = decided(program, limit)
    if found is not None:
        again = decided(program, limit, stated(program, found))
        assert again is not None and no_cheaper(again, found)


@SMALL
@given(st.integers(0, 10_000))
def test_what_holds_under_statements_is_never_refused_without_them(seed: int) -> None:
    random = Random(seed)
    program = random_program(random, 3)
    limit = limits(program, random)[0]
    pins = tuple(random_pins(random, program, AXES))
    try:
        found = decided(program, limit, pins)
    except (InfeasibleError, OutOfTimeError):
        return
    assert no_cheaper(found, decided(program, limit))


def test_a_plan_that_pins_find_is_found_without_them() -> None:
    program = program_of(lambda x, w1, w2: (x @ w1) @ w2, f32(1024, 512), f32(512, 2048), f32(2048, 512))
    texts = ('[{"x", "y"}, {}]', '[{}, {"y"}]', '[{"y"}, {}]', '[{"x", "y"}, {}]')
    pins = tuple(Pin(n, t) for n, t in zip((*program.input_names, *program.output_names), texts, strict=True))
    pinned, free = decided(program, 8_650_752, pins), decided(program, 8_650_752)
    assert pinned is not None and free is not None
    assert free.status == "optimal" and free.memory.peak_bytes <= 8_650_752
    assert free.objective_s <= pinned.objective_s + 2 * free.rounding_s


def test_a_search_that_ends_without_a_plan_or_a_proof_says_none_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from autoshard import solver

    whole, at_all = solver.solve, solver.anything

    def lost(network: CostNetwork, **options: Any) -> Any:
        found = whole(network, **options)
        return found if network.usage_limit is None else replace(found, assignment=None, cost=None, status="unknown")

    def anything_lost(network: CostNetwork, dead_ends: int, **options: Any) -> Any:
        return replace(at_all(network, dead_ends, **options), assignment=None, cost=None, status="unknown")

    program = program_of(mlp, *WIDE)
    limit = int(0.9 * decide(build_model(problem(program, AXES))).memory.peak_bytes)
    monkeypatch.setattr(solver, "solve", lost)
    monkeypatch.setattr(solver, "anything", anything_lost)
    with pytest.raises(OutOfTimeError, match=r"was found .* not proved that none exists"):
        decide(build_model(problem(program, AXES, memory_limit=limit)))
