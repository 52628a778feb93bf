"""Inputs that pins cut unevenly: what a device really holds of them counts, in limits, prices and refusals."""

from typing import Any

import jax.numpy as jnp
import pytest
from plan_cases import Pin, f32

import autoshard
from autoshard.errors import InfeasibleError

ROWS, COLUMNS = 1001, 64
WHOLE = ROWS * COLUMNS * 4
BLOCK = 126 * COLUMNS * 4
UNEVEN = Pin("w", '[{"x"}, {}]')
ASKED: dict[str, Any] = {"mesh": {"x": 8}, "hardware": "tpu_v5e", "constraints": [UNEVEN]}


def summed(w: Any) -> Any:
    return jnp.sum(w @ w.T)


def trained(w: Any, x: Any) -> Any:
    return {"w": w - 0.1 * (x.T @ (x @ w))}


def planned(f: Any, *specs: Any, **options: Any) -> autoshard.Plan:
    return autoshard.plan(f, *specs, **{**ASKED, "memory_limit": "none", **options})


def held(plan: autoshard.Plan) -> dict[str, int]:
    return {h.what: h.bytes for h in plan.memory.held}


def test_an_argument_counts_as_the_compiled_program_has_it() -> None:
    plan = planned(summed, f32(ROWS, COLUMNS))
    compiled = plan.jit().lower(f32(ROWS, COLUMNS)).compile().memory_analysis()
    assert held(plan)["w"] == compiled.argument_size_in_bytes == WHOLE


@pytest.mark.parametrize("limit", [WHOLE - 1, WHOLE + BLOCK - 1])
def test_a_limit_beneath_what_a_device_must_hold_of_it_is_refused_with_a_proof(limit: int) -> None:
    with pytest.raises(InfeasibleError) as error:
        planned(summed, f32(ROWS, COLUMNS), memory_limit=limit)
    assert (error.value.facts or {})["proved"]


def test_a_limit_of_what_a_plan_holds_is_kept() -> None:
    peak = planned(summed, f32(ROWS, COLUMNS)).memory.peak_bytes
    assert planned(summed, f32(ROWS, COLUMNS), memory_limit=peak).memory.peak_bytes <= peak


@pytest.mark.parametrize("donated", [(), (0,)], ids=["not donated", "donated"])
def test_the_next_value_of_uneven_state_is_gathered_beside_it(donated: tuple[int, ...]) -> None:
    """The output is as large as what JAX has of the input, which lies there until the copy over it begins."""
    plan = planned(trained, f32(ROWS, 4096), f32(64, ROWS), donate_argnums=donated)
    (gathered,) = (size for what, size in held(plan).items() if "resharded for output out/w" in what)
    assert gathered == held(plan)["w"] == ROWS * 4096 * 4


def test_cutting_the_block_out_is_priced_as_a_local_copy() -> None:
    plan = planned(summed, f32(ROWS, COLUMNS))
    (cut,) = (row for row in plan.cost.rows if row.where == "w, its block")
    assert (cut.kind, cut.bytes, cut.times) == ("slice", BLOCK, 1)
    assert cut.seconds == pytest.approx(2 * BLOCK / plan.machine.profile.memory.bandwidth.value)


def test_the_objective_that_was_solved_has_that_price() -> None:
    plan = planned(summed, f32(ROWS, COLUMNS))
    assert plan.status == "optimal" and plan.bound_s == pytest.approx(plan.objective_s, rel=1e-6)


def test_an_input_that_nothing_reads_is_not_cut() -> None:
    plan = planned(lambda w, x: x * 2.0, f32(ROWS, COLUMNS), f32(8, 8))
    assert held(plan)["w"] == WHOLE
    assert not any("block" in row.where for row in plan.cost.rows)


def test_over_the_host_link_comes_what_the_host_has_of_it() -> None:
    stated = [UNEVEN, autoshard.MemoryKind("w", "pinned_host")]
    plan = planned(summed, f32(ROWS, COLUMNS), constraints=stated)
    (copied,) = (row for row in plan.cost.rows if row.kind == "to_device")
    assert copied.bytes == plan.memory.host_bytes == WHOLE


def test_what_explains_a_value_says_how_jax_has_it() -> None:
    plan = planned(summed, f32(ROWS, COLUMNS))
    assert f"JAX has it in [{{}}, {{}}], {WHOLE} bytes on a device" in str(plan.explain("w")[0])


def test_planned_collectives_are_those_of_the_compiled_program() -> None:
    specs = f32(ROWS, COLUMNS), f32(16, ROWS)
    plan = planned(trained, *specs, donate_argnums=(0,))
    found = plan.verify(trained, *specs, donate_argnums=(0,), **ASKED, memory_limit="none")
    assert found.ok, str(found)


def test_the_peak_is_what_the_compiled_program_holds() -> None:
    plan = planned(lambda w: jnp.sum(jnp.tanh(w)), f32(ROWS, 4096))
    compiled = plan.jit().lower(f32(ROWS, 4096)).compile().memory_analysis()
    assert plan.memory.peak_bytes == pytest.approx(
        compiled.argument_size_in_bytes + compiled.temp_size_in_bytes + compiled.output_size_in_bytes, rel=1e-3
    )


def test_the_compiled_program_makes_no_copy_of_the_whole_argument_to_cut_blocks_that_are_not_full() -> None:
    specs = f32(ROWS, 4096), f32(4096, 8)
    plan = planned(lambda w, x: jnp.sum(jnp.tanh(w @ x) @ x.T * w), *specs)
    compiled = plan.jit().lower(*specs).compile().memory_analysis()
    assert compiled.temp_size_in_bytes < ROWS * 4096 * 4
