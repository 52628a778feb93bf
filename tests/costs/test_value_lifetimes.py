"""When each value is held: half-open intervals, time 0 before the first op, one unit an op, bodies of loops
included.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from plan_cases import accumulated, f32, looped, mlp, ops_of, problem, program_of

from autoshard.costs.fusion import analyse as fuse
from autoshard.costs.liveness import Liveness, analyse
from autoshard.costs.memory import sizes
from autoshard.planning import build_model, decide
from autoshard.program.program import Program


def lives(f: Callable[..., Any], *specs: Any, **options: Any) -> tuple[Program, Liveness]:
    program = program_of(f, *specs, **options)
    return program, analyse(program, fuse(program))


def run(f: Callable[..., Any], *specs: Any, **options: Any) -> tuple[Program, Liveness]:
    """As `lives`, under the schedule of a plan for one device."""
    program = program_of(f, *specs, **options)
    model = build_model(problem(program, {"x": 1}))
    schedule = decide(model).schedule
    return program, analyse(program, model.fusion, schedule, sizes(program, schedule.mesh, None))


def result(program: Program, kind: str, index: int = 0) -> int:
    return ops_of(program, kind)[index].results[0]


def test_a_straight_program_by_hand() -> None:
    """dot (1), tanh (2, with which the dot's fusion ends), dot (3), end (4)."""
    program, live = lives(mlp, f32(8, 16), f32(16, 8), f32(4, 8))
    first, second = result(program, "dot_general", 0), result(program, "dot_general", 1)
    assert live.points == 5
    assert live.interval[result(program, "tanh")] == (2, 4)  # until the second matmul reads it
    assert live.interval[second] == (3, 5)  # an output lives to the end
    assert first not in live.interval
    assert [live.interval[v] for v in program.body.args] == [(0, 5)] * 3


def test_an_argument_that_is_not_donated_lives_to_the_end() -> None:
    program, live = lives(lambda x: jnp.tanh(jnp.exp(x) @ x) @ x, f32(4, 4))
    assert live.interval[program.body.args[0]] == (0, live.points)


def test_a_donated_argument_lives_until_its_last_use() -> None:
    def f(x: Any, w: Any) -> Any:
        return jnp.sort(x @ w) @ w

    program, live = lives(f, f32(4, 4), f32(4, 4), donate_argnums=(0,))
    assert live.interval[program.body.args[0]] == (0, 2)  # the first matmul runs at 1


def test_a_donated_argument_that_is_returned_lives_to_the_end() -> None:
    program, live = lives(lambda x: (x, x @ x), f32(4, 4), donate_argnums=(0,))
    assert live.interval[program.body.args[0]] == (0, live.points)


def test_a_pointwise_result_takes_the_place_of_an_operand_that_dies() -> None:
    """The update of a donated parameter holds one copy of it, not two: mul (1), sub (2)."""
    program, live = run(lambda w, g: w - 0.1 * g, f32(8, 8), f32(8, 8), donate_argnums=(0,))
    assert live.interval[program.body.args[0]] == (0, 2)
    assert live.interval[result(program, "sub")] == (2, 4)


def test_without_a_schedule_a_pointwise_result_may_take_that_place() -> None:
    """Whether it does depends on the bytes of their layouts."""
    program, live = lives(lambda w, g: w - 0.1 * g, f32(8, 8), f32(8, 8), donate_argnums=(0,))
    assert live.interval[program.body.args[0]] == (0, 3)
    assert result(program, "sub") in live.in_place


def test_nothing_takes_the_place_of_an_operand_of_other_size() -> None:
    def f(w: Any, x: Any) -> Any:
        return (jnp.sort(w).astype(jnp.bfloat16), x)

    program, live = lives(f, f32(8, 8), f32(8, 8))
    start, stop = live.interval[result(program, "sort")]
    at = live.time[ops_of(program, "convert_element_type")[0].id]
    assert start < at < stop


def test_what_a_loop_reads_lives_through_it() -> None:
    program, live = run(looped, f32(3, 8, 8), f32(4, 8))
    (scan,) = ops_of(program, "scan")
    assert live.span[scan.id] == (1, 5)  # itself, matmul, tanh and sum of its body, and what it hands on
    weights, x = scan.operands[1], scan.operands[0]
    assert live.reads[weights] == (1, 5)
    assert live.reads[x] == (1, 1)  # a carry's start is copied into the loop's buffer


def test_without_a_schedule_a_loop_may_read_a_copy_made_when_it_begins() -> None:
    program, live = lives(looped, f32(3, 8, 8), f32(4, 8))
    (scan,) = ops_of(program, "scan")
    assert live.reads[scan.operands[1]] == (1, 1)


def test_stacked_results_exist_from_the_start_of_the_loop_and_carries_from_its_end() -> None:
    program, live = lives(looped, f32(3, 8, 8), f32(4, 8))
    (scan,) = ops_of(program, "scan")
    carry, stacked = scan.results
    assert live.interval[carry][0] == 5
    assert live.interval[stacked] == (1, live.points)


def test_what_the_body_hands_over_is_held_as_the_result_of_the_loop() -> None:
    program, live = lives(accumulated, f32(8, 8), f32(3, 4, 8))
    (scan,) = ops_of(program, "scan")
    end = live.span[scan.id][1]
    assert live.interval[result(program, "add")][1] == end
    assert live.interval[scan.results[0]][0] == end


def test_a_value_that_no_one_reads_after_a_chain_of_fused_ops_lives_until_the_chain_is_read() -> None:
    def f(x: Any, w: Any) -> Any:
        y = jnp.sort(x)  # 1
        z = jnp.tanh(-y)  # 2, 3: fused
        s = jnp.sort(w)  # 4
        return z @ s  # 5

    program, live = run(f, f32(4, 4), f32(4, 4))
    assert live.interval[result(program, "sort", 0)] == (1, 6)
    program, live = lives(f, f32(4, 4), f32(4, 4))
    assert live.interval[result(program, "sort", 0)] == (1, 3), "a schedule may copy what is fused"


def test_branches_follow_each_other_in_time() -> None:
    def f(p: Any, x: Any) -> Any:
        return lax.cond(p > 0.0, lambda x: jnp.sort(x), lambda x: x @ x, x)

    program, live = lives(f, f32(), f32(4, 4))
    (cond,) = ops_of(program, "cond")
    times = sorted([live.time[ops_of(program, "sort")[0].id], live.time[ops_of(program, "dot_general")[0].id]])
    assert live.span[cond.id] == (times[0] - 1, times[1])
