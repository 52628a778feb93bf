"""What values in memory hold beyond the time until which they are surely held, in networks with factored tables."""

from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import ShapeDtypeStruct
from plan_cases import PROGRAMS, model_of, needless_copies, problem, program_of, random_assignment
from random_programs import random_program
from solver_cases import judged

from autoshard.errors import InfeasibleError
from autoshard.formulation import encode
from autoshard.planning import Model, build_model, decide
from autoshard.solver.network import evaluate, usage_profile


def factored(model: Model) -> Model:
    assert model.repeats.network.is_factored
    return model


@pytest.fixture(autouse=True)
def rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "FACTORED_ENTRIES", 0)


def counted(model: Model, assignment: tuple[int, ...]) -> np.ndarray:
    """Bytes that the network with kept forms counts at every moment."""
    out = np.zeros(model.liveness.points + 2, np.int64)
    for time, live in usage_profile(model.kept.network, model.kept.extended(assignment)):
        out[time:] = live
    return out


def assert_counts_no_more_than_is_held(model: Model, count: int) -> None:
    random = Random(2)
    for _ in range(count):
        assignment = random_assignment(model.repeats.network, random)
        if assignment is not None and not needless_copies(model, assignment):
            assert (counted(model, assignment) <= model.live(assignment)).all()


@pytest.mark.parametrize("machine", ["tpu_v5e", "h100"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kept_forms_never_count_more_memory_than_the_simulation(name: str, machine: str) -> None:
    """Else a bound could lie above a plan, and a limit could call one impossible."""
    model = model_of(name, {"x": 2, "y": 2}, profile=machine)
    assert_counts_no_more_than_is_held(model, 12)


def test_they_hold_no_more_of_what_is_gathered_as_it_is_used() -> None:
    """The copy is half as large as its type says, and what it was made of stays beside it."""

    def step(d: jax.Array, w: jax.Array) -> tuple[jax.Array, ...]:
        d = jnp.tanh(d)
        return d @ w, d.T @ w, jnp.exp(d), jnp.sum(d * d)

    program = program_of(step, *[ShapeDtypeStruct(shape, "float32") for shape in ((64, 64), (64, 128))])
    assert_counts_no_more_than_is_held(build_model(problem(program, {"x": 4}, profile="tpu_v5e@compiler")), 60)


@pytest.mark.parametrize("machine", ["tpu_v5e", "h100"])
@pytest.mark.parametrize("seed", [3, 36, 77, 127, 128])
def test_that_holds_for_random_programs(seed: int, machine: str) -> None:
    """In these a larger copy that uses share is made late, when it is first read."""
    made = random_program(seed, ops=12)
    program = program_of(made.f, *made.args)
    assert_counts_no_more_than_is_held(build_model(problem(program, {"x": 2, "y": 2}, profile=machine)), 12)


def softmax_twice(x: jax.Array, w: jax.Array) -> jax.Array:
    """Scores are read for their largest value, and late through a value that is fused."""
    scores = x @ w
    fused = jnp.exp(scores - scores.max(-1, keepdims=True))
    late = jnp.tanh(fused @ w.T) @ w
    return late @ fused.T


@pytest.fixture
def late() -> Model:
    program = program_of(softmax_twice, *[ShapeDtypeStruct(shape, "float32") for shape in ((16, 8), (8, 16))])
    return factored(build_model(problem(program, {"x": 2, "y": 2})))


def base_counted(model: Model, assignment: tuple[int, ...]) -> np.ndarray:
    out = np.zeros(model.liveness.points + 2, np.int64)
    for time, live in usage_profile(model.repeats.network, assignment):
        out[time:] = live
    return out


def drawn(model: Model, seed: int) -> tuple[int, ...]:
    found = random_assignment(model.repeats.network, Random(seed))
    assert found is not None
    return found


def test_what_a_fused_value_is_computed_from_is_counted_until_that_is_read(late: Model) -> None:
    more = [counted(late, one) - base_counted(late, one) for one in (drawn(late, seed) for seed in range(20))]
    assert min(m.min() for m in more) == 0 and max(m.max() for m in more) > 0


def test_kept_forms_cost_nothing(late: Model) -> None:
    assignment = drawn(late, 1)
    whole = evaluate(late.kept.network, late.kept.extended(assignment))
    assert whole.cost == evaluate(late.repeats.network, assignment).cost


def test_a_network_with_kept_forms_begins_with_the_nodes_and_edges_of_the_one_without(late: Model) -> None:
    """So that messages, and assignments, go from one to the other."""
    base, kept = late.repeats.network, late.kept.network
    assert all(a is b for a, b in zip(base.costs, kept.costs, strict=False))
    assert all(a is b for a, b in zip(base.edges, kept.edges, strict=False))


def test_a_bound_that_counts_kept_forms_is_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them it is a ninth of this plan's cost."""
    program = program_of(softmax_twice, *[ShapeDtypeStruct(shape, "float32") for shape in ((64, 32), (32, 64))])
    monkeypatch.setattr(encode, "FACTORED_ENTRIES", 10**12)
    peak = decide(build_model(problem(program, {"x": 2, "y": 2}))).memory.peak_bytes
    best = decide(build_model(problem(program, {"x": 2, "y": 2}, memory_limit=peak * 9 // 10)))
    monkeypatch.setattr(encode, "FACTORED_ENTRIES", 0)
    model = factored(build_model(problem(program, {"x": 2, "y": 2}, memory_limit=peak * 9 // 10)))
    found = decide(model)
    assert (found.status, found.objective_s) == ("optimal", best.objective_s)
    assert found.proved is not None and found.proved.moments == {}
    assert judged(found.proved.network(model), found.proved.certificate).bound == found.proved.bound


def test_a_limit_that_only_kept_forms_exceed_is_refused_with_a_certificate() -> None:
    """Without them each state holds so little that 438 bytes would do; the network of all copies has no plan either."""
    made = random_program(3435, ops=12)
    model = factored(build_model(problem(program_of(made.f, *made.args), {"x": 2, "y": 2}, memory_limit=570)))
    with pytest.raises(InfeasibleError) as refused:
        decide(model)
    proof = refused.value.proof
    assert proof is not None and proof.moments == {}
    assert judged(proof.network(model), proof.certificate).bound is None
