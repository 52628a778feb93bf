"""What a schedule made by hand costs: every op and every step of it, times its executions."""

from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax
from plan_cases import atoms, f32, looped, machine, ops_of, program_of, whole

from autoshard.costmodels import AxisPart
from autoshard.costs.fusion import analyse as fuse
from autoshard.costs.price import PlanCost, multiplicities, price
from autoshard.costs.pricing import StepPrices
from autoshard.program.program import Program
from autoshard.program.schedule import PROGRAM, Placement, Schedule, Use
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard, Step, StepKind

AXES = {"x": 4}
GATHER = Step(StepKind.ALL_GATHER, (0,), 0)
CUT, WHOLE = Layout(((0,), ())), Layout(((), ()))


def cost(program: Program, schedule: Schedule, trips: int = 1) -> PlanCost:
    return price(program, schedule, fuse(program), StepPrices(machine(AXES), atoms(AXES)), trips)


def test_a_plan_without_reshards_costs_its_ops() -> None:
    program = program_of(lambda x, w: x @ w, f32(8, 8), f32(8, 8))
    found = cost(program, whole(program, AXES))
    assert found.rows == () and found.communication_s == found.local_s == 0
    assert found.step_s == found.compute_s == sum(found.op_seconds.values()) > 0


def test_a_gather_costs_what_the_machine_says_for_the_gathered_array() -> None:
    program = program_of(lambda x, w: x @ w, f32(8, 8), f32(8, 8))
    schedule = whole(program, AXES)
    (dot,) = ops_of(program, "dot_general")
    schedule.uses[Use(dot.id, 1)] = Reshard(CUT, WHOLE, (GATHER,))
    (row,) = cost(program, schedule).rows
    assert row.bytes == 4 * 8 * 8
    assert row.seconds == pytest.approx(machine(AXES).collective_s("all_gather", 256.0, (AxisPart("x", 1, 4),)))
    assert (row.kind, row.atoms, row.dim, row.times, row.op) == ("all_gather", (0,), 0, 1, dot.id)


@pytest.mark.parametrize(
    ("step", "source", "whole_bytes"),
    [
        (Step(StepKind.REDUCE_SCATTER, (0,), 0), Layout(((), ()), (0,)), 256),  # V is what each device puts in
        (Step(StepKind.ALL_REDUCE, (0,)), Layout(((), ()), (0,)), 256),
        (Step(StepKind.ALL_TO_ALL, (0,), 0, 1), CUT, 256),  # V is n times what each device holds
    ],
    ids=lambda v: v.kind.value if isinstance(v, Step) else "",
)
def test_other_collectives_cost_what_the_machine_says(step: Step, source: Layout, whole_bytes: int) -> None:
    program = program_of(lambda x, w: x @ w, f32(8, 8), f32(8, 8))
    schedule = whole(program, AXES)
    schedule.uses[Use(PROGRAM, 0)] = Reshard(source, step.apply(source), (step,))
    (row,) = cost(program, schedule).rows
    expected = machine(AXES).collective_s(step.kind.value, float(whole_bytes), (AxisPart("x", 1, 4),))
    assert row.seconds == pytest.approx(expected)


@pytest.mark.parametrize(
    ("step", "source", "whole_bytes"),
    [
        (GATHER, CUT, 4 * 16 * 8),  # of 13 rows every device holds 4
        (Step(StepKind.REDUCE_SCATTER, (0,), 0), Layout(((), ()), (0,)), 4 * 16 * 8),
        (Step(StepKind.ALL_TO_ALL, (0,), 1, 0), Layout(((), (0,))), 4 * 16 * 8),
        (Step(StepKind.ALL_TO_ALL, (0,), 0, 1), CUT, 4 * 16 * 8),
        (Step(StepKind.ALL_REDUCE, (0,)), Layout(((), ()), (0,)), 4 * 13 * 8),
    ],
    ids=lambda v: v.kind.value if isinstance(v, Step) else "",
)
def test_uneven_blocks_move_as_whole_ones(step: Step, source: Layout, whole_bytes: int) -> None:
    program = program_of(lambda x: x + 1, f32(13, 8))
    schedule = whole(program, AXES)
    schedule.uses[Use(PROGRAM, 0)] = Reshard(source, step.apply(source), (step,))
    (row,) = cost(program, schedule).rows
    expected = machine(AXES).collective_s(step.kind.value, float(whole_bytes), (AxisPart("x", 1, 4),))
    assert row.seconds == pytest.approx(expected)


def test_an_all_to_all_between_two_uneven_dimensions_fills_both() -> None:
    """Of 13 x 10 over 4 devices each gives its 4 rows, in four pieces of 3 columns."""
    program = program_of(lambda x: x + 1, f32(13, 10))
    schedule = whole(program, AXES)
    step = Step(StepKind.ALL_TO_ALL, (0,), 0, 1)
    schedule.uses[Use(PROGRAM, 0)] = Reshard(CUT, step.apply(CUT), (step,))
    (row,) = cost(program, schedule).rows
    assert row.bytes == 4 * 12 * 4


def test_a_slice_reads_and_writes_what_it_keeps() -> None:
    program = program_of(lambda x, w: x @ w, f32(8, 8), f32(8, 8))
    schedule = whole(program, AXES)
    schedule.uses[Use(PROGRAM, 0)] = Reshard(WHOLE, CUT, (Step(StepKind.SLICE, (0,), 0),))
    found = cost(program, schedule)
    assert found.communication_s == 0
    assert found.local_s == pytest.approx(float(machine(AXES).compute_s(0.0, 2 * 64.0, "float32", "vector")))
    assert not found.rows[0].is_collective


def test_every_step_of_a_path_has_its_row() -> None:
    program = program_of(lambda x, w: x @ w, f32(8, 8), f32(8, 8))
    schedule = whole(program, AXES)
    steps = (GATHER, Step(StepKind.SLICE, (0,), 1))
    schedule.uses[Use(PROGRAM, 0)] = Reshard(CUT, Layout(((), (0,))), steps)
    assert [r.kind for r in cost(program, schedule).rows] == ["all_gather", "slice"]


def test_a_shared_form_is_paid_once_for_all_uses() -> None:
    program = program_of(lambda x, a, b: (x @ a, x @ b, x @ x), f32(8, 8), f32(8, 8), f32(8, 8))
    schedule = whole(program, AXES)
    schedule.shared[program.body.args[0]] = Reshard(CUT, WHOLE, (GATHER,))
    (row,) = cost(program, schedule).rows
    assert row.times == 1 and "for all its uses" in row.where


# -- loops ---------------------------------------------------------------------------------------------------------

LOOP = program_of(looped, f32(3, 8, 8), f32(4, 8))
(SCAN,) = ops_of(LOOP, "scan")


def times(use: Use | None, value: int | None = None, dims: int = 2) -> float:
    schedule = whole(LOOP, AXES)
    step = Step(StepKind.ALL_GATHER, (0,), dims - 1)
    source = Layout((*((),) * (dims - 1), (0,)))
    reshard = Reshard(source, Layout.replicated(dims), (step,))
    if use is not None:
        schedule.uses[use] = reshard
    elif value is not None:
        schedule.shared[value] = reshard
    (row,) = cost(LOOP, schedule).rows
    return row.times


def test_ops_of_a_body_run_once_a_trip() -> None:
    (dot,) = ops_of(LOOP, "dot_general")
    (after,) = ops_of(LOOP, "mul")
    assert multiplicities(LOOP)[dot.id] == 3 and multiplicities(LOOP)[after.id] == 1
    found = cost(LOOP, whole(LOOP, AXES)).op_seconds
    alone = program_of(lambda c, w: c @ w, f32(4, 8), f32(8, 8))
    assert found[dot.id] == pytest.approx(3 * cost(alone, whole(alone, AXES)).compute_s)


def test_a_reshard_of_what_enters_a_loop_is_paid_once() -> None:
    assert times(Use(SCAN.id, 1), dims=3) == 1
    assert times(Use(SCAN.id, 0)) == 1


def test_a_reshard_into_a_stacked_result_is_paid_every_trip() -> None:
    """Trap 3: pricing it once moved an optimum by a seventh and looked plausible."""
    assert times(Use(SCAN.id, 1, 0), dims=1) == 3


def test_a_reshard_of_a_carry_at_the_end_of_the_body_is_paid_every_trip() -> None:
    assert times(Use(SCAN.id, 0, 0)) == 3


def test_a_shared_form_inside_of_a_loop_is_paid_every_trip() -> None:
    assert times(None, SCAN.regions[0].args[0]) == 3
    assert times(None, SCAN.results[0]) == 1


def test_loops_in_loops_multiply() -> None:
    def f(x: Any) -> Any:
        inner = lambda c, _: (jnp.tanh(c), None)  # noqa: E731
        outer = lambda c, _: (lax.scan(inner, c, None, length=5)[0] * 2.0, None)  # noqa: E731
        return lax.scan(outer, x, None, length=3)[0]

    program = program_of(f, f32(8, 8))
    found = multiplicities(program)
    assert found[ops_of(program, "tanh")[0].id] == 15
    assert found[ops_of(program, "mul")[0].id] == 3


def test_a_while_loop_of_unknown_count_runs_as_often_as_stated() -> None:
    def f(n: Any, x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1.0, c[1] @ c[1]), (0.0, x))[1]

    program = program_of(f, f32(), f32(8, 8))
    (dot,) = ops_of(program, "dot_general")
    assert multiplicities(program)[dot.id] == 1
    assert multiplicities(program, trips=7)[dot.id] == 7
    assert cost(program, whole(program, AXES), 7).op_seconds[dot.id] == pytest.approx(
        7 * cost(program, whole(program, AXES)).op_seconds[dot.id]
    )


def test_a_counted_while_loop_keeps_its_count() -> None:
    program = program_of(lambda x: lax.fori_loop(0, 6, lambda i, c: c @ c, x), f32(8, 8))
    (dot,) = ops_of(program, "dot_general")
    assert multiplicities(program, trips=7)[dot.id] == 6


def test_a_while_loop_that_never_runs_costs_its_condition_alone() -> None:
    program = program_of(
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] @ c[1]), (5, x))[1], f32(8, 8)
    )
    times = multiplicities(program, trips=7)
    assert {program.ops[op].kind: n for op, n in times.items()} == {"while": 1, "lt": 1, "add": 0, "dot_general": 0}


def test_the_condition_of_a_while_loop_runs_once_more_than_its_body() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: (c @ c).sum() < 9.0, lambda c: c * 2.0, x)

    program = program_of(f, f32(8, 8))
    (dot,), (product,) = ops_of(program, "dot_general"), ops_of(program, "mul")
    found = multiplicities(program, trips=7)
    assert (found[dot.id], found[product.id]) == (8, 7)
    assert multiplicities(program)[dot.id] == 2


# -- combined results ----------------------------------------------------------------------------------------------


def test_a_max_over_a_cut_dimension_pays_an_all_reduce_for_each_result() -> None:
    program = program_of(lambda x: x.max(axis=1), f32(8, 8))
    schedule = whole(program, AXES)
    (op,) = ops_of(program, "reduce_max")
    assert op.rule is not None
    schedule.placements[op.id] = Placement(tuple((0,) if f in op.rule.reduction else () for f in range(2)))
    (row,) = cost(program, schedule).rows
    assert row.kind == "all_reduce" and row.bytes == 8 * 4
    assert "combines its result (max)" in row.where


def test_a_sum_over_a_cut_dimension_leaves_a_partial_sum_and_pays_nothing_yet() -> None:
    program = program_of(lambda x: x.sum(axis=1), f32(8, 8))
    schedule = whole(program, AXES)
    (op,) = ops_of(program, "reduce_sum")
    assert op.rule is not None
    schedule.placements[op.id] = Placement(tuple((0,) if f in op.rule.reduction else () for f in range(2)))
    assert cost(program, schedule).rows == ()
