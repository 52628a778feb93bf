"""Plans of loops in parts: what they cost, what is sent, what they compute, and how they are recorded."""

import signal
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plan_cases import f32
from running import FAST

from autoshard import AutoshardError, InputError, Pin, plan
from autoshard.api.loops import STOPPED
from autoshard.api.plans import Plan
from autoshard.models.layers import attention
from autoshard.verify.plan.checker import check_plan

MESH: dict[str, Any] = {"mesh": {"x": 8}, "hardware": "tpu_v5e"}
BY_ROWS = '[{}, {"x"}, {}, {}]'


def loss(q: Any, k: Any, v: Any) -> Any:
    return jnp.square(attention(q, k, v, block=16)).sum()


STEP = jax.value_and_grad(loss, argnums=(0, 1, 2))


def qkv(heads: int, rows: int = 128, size: int = 32) -> tuple[Any, ...]:
    return (f32(1, rows, heads, size),) * 3


def pinned(made: Any) -> list[Pin]:
    return [Pin(name, BY_ROWS) for name in made]


ROWS = pinned(("q", "k", "v", "out/1/*"))


def sent(made: Plan) -> list[str]:
    return sorted(set(made.collectives["kind"].tolist()))


def numbers(specs: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s.shape, np.float32) for s in jax.tree.leaves(specs)]


def judged(made: Plan, f: Any, specs: Any) -> None:
    """What the plan computes on eight devices is what the function computes on one."""
    run = made.jit().lower(*specs).compile(compiler_options=FAST)
    for ours, theirs in zip(
        jax.tree.leaves(run(*made.place(*numbers(specs)))), jax.tree.leaves(jax.jit(f)(*numbers(specs))), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def auto() -> Plan:
    return plan(STEP, *qkv(1, 1024, 64), **MESH, constraints=ROWS, loop_parts="auto")


def test_blockwise_attention_is_cut_along_the_sequence_where_that_is_found_to_pay(auto: Plan) -> None:
    """One head of one sequence: nothing but the sequence can be cut, and the loop over blocks of queries is that."""
    whole = plan(STEP, *qkv(1, 1024, 64), **MESH, constraints=ROWS)
    assert auto.objective_s < 0.5 * whole.objective_s
    assert auto.program.loop_parts == (8, 8) and whole.program.loop_parts == ()
    assert any("loop_parts='auto'" in note and "saves" in note for note in auto.notes)


def test_its_backward_loop_adds_up_gradients_of_keys_and_values_by_device(auto: Plan) -> None:
    """dK and dV are totals of the backward loop: partial sums of its parts, scattered once, behind the loop."""
    rows = auto.collectives
    assert set(rows[rows["kind"] == "reduce_scatter"]["times"]) == {1}
    assert check_plan(auto.to_dict()).ok


def test_a_plan_in_parts_runs_computes_and_is_verified_as_its_function(auto: Plan, tmp_path: Path) -> None:
    auto.save(tmp_path / "plan.json")
    read = Plan.load(tmp_path / "plan.json")
    assert read.program.loop_parts == (8, 8)
    found = read.verify(STEP, *qkv(1, 1024, 64), **MESH, constraints=ROWS)
    assert found.ok, str(found)


def test_keys_and_values_are_gathered_where_heads_are_few() -> None:
    made = plan(STEP, *qkv(2, 1024, 64), **MESH, constraints=ROWS, loop_parts=8)
    assert sent(made) == ["all_gather", "all_reduce", "reduce_scatter"]
    judged(made, STEP, qkv(2, 1024, 64))


def test_rows_become_heads_by_all_to_alls_where_heads_are_many() -> None:
    made = plan(STEP, *qkv(8, 1024, 64), **MESH, constraints=ROWS, loop_parts=8)
    assert "all_to_all" in sent(made) and "all_gather" not in sent(made)
    judged(made, STEP, qkv(8, 1024, 64))


def test_totals_of_maxima_and_sums_are_combined_behind_the_loop() -> None:
    def extremes(x: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            high, low, total = carry
            return (jnp.maximum(high, row.max(0)), jnp.minimum(low, row.min(0)), total + jnp.sin(row).sum(0)), None

        return jax.lax.scan(body, (jnp.zeros(64), jnp.zeros(64), jnp.ones(64)), x, reverse=True)[0]

    specs = (f32(16, 8192, 64),)
    made = plan(extremes, *specs, **MESH, constraints=[Pin("x", '[{"x"}, {}, {}]')], loop_parts=8)
    rows = made.collectives  # what is sent is totals of 64 numbers by device, once
    assert set(rows["times"]) == {1} and rows["bytes"].max() <= 8 * 64 * 4
    judged(made, extremes, specs)


@pytest.mark.parametrize(("at", "caught"), [("solving", True), ("loops in up to", False)])
def test_ctrl_c_ends_the_search_for_parts_with_the_best_plan_by_then(at: str, caught: bool) -> None:
    said: list[str] = []

    def stop(text: str) -> None:
        said.append(text)
        if at in text and sum(at in t for t in said) == 1:
            with suppress(KeyboardInterrupt) if caught else nullcontext():
                signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        made = plan(STEP, *qkv(1), **MESH, constraints=ROWS, loop_parts="auto", progress=stop)
    finally:
        signal.signal(signal.SIGINT, before)
    assert made.program.loop_parts == () and STOPPED in made.notes and made.run["interrupted"]
    assert any("loops in up to" in text for text in said) is not caught


def test_parts_that_gain_nothing_are_not_taken() -> None:
    """A batch that every device can have a share of: the loop stays as it stands."""

    def rows(x: Any) -> Any:
        return jax.lax.map(jnp.tanh, x)

    made = plan(rows, f32(8, 8192), **MESH, loop_parts="auto")
    assert made.program.loop_parts == () and not any("loop_parts" in note for note in made.notes)


def test_a_statement_about_a_value_in_the_loop_keeps_the_loop_as_it_stands() -> None:
    def named(x: Any) -> Any:
        return jax.lax.map(lambda row: jax.ad_checkpoint.checkpoint_name(jnp.tanh(row @ row.T), "scores"), x)

    pin = Pin("@scores", '[{"x"}, {}]')
    made = plan(named, f32(8, 64, 64), **MESH, constraints=pin, loop_parts="auto")
    assert made.program.loop_parts == ()
    assert any("loops run as they stand, since" in note for note in made.notes)


def test_each_loop_may_have_parts_of_its_own() -> None:
    def twice(x: Any) -> Any:
        return jax.lax.map(jnp.sin, x), jax.lax.map(jnp.cos, x)

    assert plan(twice, f32(16, 64), **MESH, loop_parts=[2, 8]).program.loop_parts == (2, 8)
    assert plan(twice, f32(16, 64), **MESH, loop_parts=4).program.loop_parts == (4, 4)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([2, 8, 4], "loop_parts: 3 numbers for 2 such loops: the last are not used"),
        ([12, 8], "loop_parts: the loop of 16 iterations at test_loops_in_parts.py:"),
        ([2, 8], None),
    ],
)
def test_numbers_of_parts_that_are_not_taken_as_they_are_asked_are_told(asked: Any, told: str | None) -> None:
    def twice(x: Any) -> Any:
        return jax.lax.map(jnp.sin, x), jax.lax.map(jnp.cos, x)

    notes = [note for note in plan(twice, f32(16, 64), **MESH, loop_parts=asked).notes if "loop_parts" in note]
    assert len(notes) == (told is not None) and all(note.startswith(str(told)) for note in notes)


@pytest.mark.parametrize("asked", [4, "auto"])
def test_a_loop_with_a_branch_by_iteration_stays_as_it_stands_and_the_plan_says_so(asked: Any) -> None:
    def rows(x: Any) -> Any:
        return jax.lax.map(lambda row: jax.lax.cond(row[0] > 0, jnp.sin, jnp.cos, row), x)

    made = plan(rows, f32(16, 64), **MESH, loop_parts=asked)
    (note,) = [n for n in made.notes if n.startswith("loop_parts: the loop of 16 iterations at test_loops")]
    assert "a branch by iteration (cond)" in note and made.program.loop_parts == ()
    assert not any("loop_parts" in n for n in plan(rows, f32(16, 64), **MESH).notes)


@pytest.mark.parametrize("asked", [0, -1, 2.5, "all", True, [2, 0]])
def test_parts_are_positive_numbers(asked: Any) -> None:
    with pytest.raises(InputError, match="loop_parts: expected 'auto', a number of parts from 1"):
        plan(loss, *qkv(1), **MESH, loop_parts=asked)


def test_a_plan_file_with_impossible_parts_is_refused(auto: Plan) -> None:
    data = auto.to_dict()
    data["program"]["loop_parts"] = ["many"]
    with pytest.raises(AutoshardError, match="no positive numbers"):
        Plan.from_dict(data)


def test_a_running_softmax_over_keys_sends_peaks_and_totals_only() -> None:
    """Each device takes the queries to its own keys and values; the loop over its blocks sends nothing."""

    def decode(q: Any, k: Any, v: Any) -> Any:
        def body(carry: Any, block: Any) -> Any:
            m, total, out = carry
            s = q @ block[0].T
            new = jnp.maximum(m, s.max(-1))
            p, decay = jnp.exp(s - new[:, None]), jnp.exp(m - new)
            return (new, total * decay + p.sum(-1), out * decay[:, None] + p @ block[1]), None

        start = jnp.full(8, -jnp.inf), jnp.zeros(8), jnp.zeros((8, 64))
        blocks = (k.reshape(16, -1, 64), v.reshape(16, -1, 64))
        _, total, out = jax.lax.scan(body, start, blocks)[0]
        return out / total[:, None]

    specs = f32(8, 64), f32(16384, 64), f32(16384, 64)
    rows = [Pin(name, '[{"x"}, {}]') for name in "kv"]
    made = plan(decode, *specs, **MESH, constraints=rows, loop_parts=8)
    whole = plan(decode, *specs, **MESH, constraints=rows)
    assert set(made.collectives["times"]) == {1} and made.collectives["bytes"].max() <= 8 * 8 * 64 * 4
    assert made.objective_s < 0.5 * whole.objective_s
    judged(made, decode, specs)
