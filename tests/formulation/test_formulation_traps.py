"""What goes wrong in formulations of this kind, one test for each: see docs/architecture.md for the words."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plan_cases import Pin, f32, looped, ops_of, problem, program_of, traced

from autoshard.planning import Decision, build_model, decide
from autoshard.program.program import Program
from autoshard.program.schedule import Use
from autoshard.solver.network import IMPOSSIBLE


def solved(program: Program, axes: dict[str, int], pins: list[Pin] | None = None, **options: Any) -> Decision:
    return decide(build_model(problem(program, axes, pins=pins or [], **options)))


def collectives(decision: Decision) -> Counter[str]:
    """Executions by kind."""
    found: Counter[str] = Counter()
    for row in decision.cost.rows:
        if row.is_collective:
            found[row.kind] += int(row.times)
    return found


BIG = f32(1024, 1024)


def test_a_form_that_three_uses_want_is_gathered_once() -> None:
    """The normed input of q, k and v."""
    program = program_of(lambda x, q, k, v: (x @ q, x @ k, x @ v), f32(64, 1024), BIG, BIG, BIG)
    pins = [Pin("x", '[{}, {"x"}]'), *(Pin(n, '[{}, {"x"}]') for n in "qkv"), Pin("out/**", '[{}, {"x"}]')]
    decision = solved(program, {"x": 4}, pins)
    assert collectives(decision) == {"all_gather": 1}
    assert list(decision.schedule.shared) == [program.body.args[0]]


def test_partial_sums_are_added_before_the_one_reduction() -> None:
    program = program_of(lambda a, b, x, y: (x @ a + y @ b).T * 0.5, BIG, BIG, BIG, BIG)
    pins = [Pin(n, '[{"x"}, {}]') for n in "ab"] + [Pin(n, '[{}, {"x"}]') for n in "xy"] + [Pin("out", "[{}, {}]")]
    found = collectives(solved(program, {"x": 4}, pins))
    assert found["all_reduce"] + found["reduce_scatter"] == 1


def test_a_partial_sum_is_scattered_where_its_reader_wants_it_cut() -> None:
    """One reduce-scatter rather than an all-reduce and a slice."""
    program = program_of(lambda x, w: x @ w, BIG, BIG)
    pins = [Pin("x", '[{}, {"x"}]'), Pin("w", '[{"x"}, {}]'), Pin("out", '[{"x"}, {}]')]
    assert collectives(solved(program, {"x": 4}, pins)) == {"reduce_scatter": 1}


def test_a_gradient_that_a_loop_adds_up_is_reduced_once_after_it() -> None:
    program = traced("accumulated").program
    wide = program_of(
        lambda w, x: jax.lax.scan(lambda t, xk: (t + xk.T @ jnp.tanh(xk @ w), None), jnp.zeros_like(w), x)[0],
        f32(256, 256), f32(8, 512, 256),
    )  # fmt: skip
    assert ops_of(program, "scan")
    pins = [Pin("w", "[{}, {}]"), Pin("x", '[{}, {"x"}, {}]'), Pin("out", "[{}, {}]")]
    decision = solved(wide, {"x": 4}, pins)
    assert collectives(decision) == {"all_reduce": 1}


def test_a_reshard_into_a_stacked_result_is_priced_every_trip() -> None:
    """So it is done outside of the loop where the latency of each trip counts."""

    def f(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, wk: (c, jnp.tanh(c @ wk)), x, w)[1]

    program = program_of(f, f32(16, 8, 8), f32(64, 8))
    pins = [Pin("x", '[{"x"}, {}]'), Pin("w", "[{}, {}, {}]"), Pin("tanh", '[{"x"}, {}]'), Pin("out", "[{}, {}, {}]")]
    decision = solved(program, {"x": 4}, pins)
    assert collectives(decision) == {"all_gather": 1}
    (scan,) = ops_of(program, "scan")
    assert decision.schedule.uses[Use(scan.id, 0, 0)].steps == ()


def test_impossible_pairs_are_forbidden_and_not_merely_dear() -> None:
    model = build_model(problem(traced("looped").program, {"x": 2, "y": 2}))
    values = np.concatenate([e.costs.ravel() for e in model.encoded.network.edges])
    assert set(values[values > IMPOSSIBLE // 10].tolist()) <= {IMPOSSIBLE}


def test_scalars_and_sizes_of_one_tie_nothing() -> None:
    """Edges that cost nothing whatever is chosen are left out."""
    model = build_model(problem(program_of(lambda s, x: (s + 1.0, x), f32(), f32(1, 1)), {"x": 2}))
    assert model.encoded.network.edges == ()
    assert all(len(c) == 1 for c in model.encoded.network.costs)


def test_ties_are_broken_towards_less_memory() -> None:
    """Handing an argument back costs no seconds in any layout; the cut one, and its copy, hold fewer bytes."""
    program = program_of(lambda x: x, f32(8, 8))
    decision = solved(program, {"x": 2, "y": 2})
    assert decision.cost.step_s == 0.0
    assert decision.schedule.definitions[program.body.args[0]].local_shape((8, 8), decision.schedule.mesh) in (
        (2, 8), (4, 4), (8, 2),
    )  # fmt: skip
    assert decision.memory.peak_bytes == 2 * 4 * 8 * 8 / 4


def test_a_dimension_that_divides_by_no_axis_is_cut_by_its_sub_axis() -> None:
    """8 kv heads on an axis of 16."""

    def f(x: Any, w: Any) -> Any:
        return jnp.einsum("btd,dhk->bthk", x, w)

    program = program_of(f, f32(1, 4096, 4096), f32(4096, 8, 128))
    model = build_model(problem(program, {"x": 16}, pins=[Pin("out", '[{}, {}, {"x":(1)8}, {}]')]))
    decision = decide(model)
    assert decision.schedule.mesh.names == ("x:(1)8", "x:(8)2")


def test_the_stacked_dimension_of_a_loop_is_never_cut_in_it() -> None:
    program = program_of(looped, f32(4, 8, 8), f32(4, 8))
    model = build_model(problem(program, {"x": 4}))
    (scan,) = ops_of(program, "scan")
    for result in scan.results[1:]:
        assert all(lay.dims[0] == () for lay in model.collected.definition[result].layouts)


@pytest.mark.parametrize("limit", [None, 4 * 1024 * 1024])
def test_stacked_weights_are_gathered_slice_by_slice_under_a_memory_limit(limit: int | None) -> None:
    """FSDP. Gathering the stack before the loop takes as many bytes and less latency, but holds it whole (4 MiB)."""

    def f(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, wk: (jnp.sort(c @ wk), None), x, w)[0]

    program = program_of(f, f32(16, 256, 256), f32(2048, 256))
    pins = [Pin("w", '[{}, {"x"}, {}]'), Pin("x", '[{"x"}, {}]'), Pin("dot_general", '[{"x"}, {}]')]
    decision = solved(program, {"x": 4}, pins, memory_limit=limit)
    (scan,) = ops_of(program, "scan")
    before = [s.kind.value for s in decision.schedule.uses[Use(scan.id, 1)].steps]
    assert before == (["all_gather"] if limit is None else [])
    assert collectives(decision) == ({"all_gather": 1} if limit is None else {"all_gather": 16})
    if limit is not None:
        assert decision.memory.peak_bytes <= limit
