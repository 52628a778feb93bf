"""Peak memory of schedules made by hand, and what the planner's schedules hold."""

from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax
from plan_cases import Pin, f32, looped, mlp, ops_of, problem, program_of, whole

from autoshard.costs.fusion import analyse as fuse
from autoshard.costs.liveness import analyse
from autoshard.costs.memory import Held, MemoryProfile, holdings, simulate
from autoshard.planning import build_model, decide
from autoshard.program.program import Op, Program
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard, Step, StepKind


def peak(program: Program, schedule: Schedule) -> MemoryProfile:
    return simulate(program, schedule, analyse(program, fuse(program)))


def test_the_peak_of_a_straight_program_by_hand() -> None:
    """Arguments 8x16, 16x8, 4x8; at the second matmul its operand 4x16 and its result 4x8 too."""
    program = program_of(mlp, f32(8, 16), f32(16, 8), f32(4, 8))
    found = peak(program, whole(program, {"x": 2}))
    assert found.peak_bytes == 4 * (8 * 16 + 16 * 8 + 4 * 8 + 4 * 16 + 4 * 8)
    assert found.where.startswith("dot_general:2")


def test_a_cut_definition_is_counted_by_its_local_size() -> None:
    program = program_of(mlp, f32(8, 16), f32(16, 8), f32(4, 8))
    schedule = whole(program, {"x": 2})
    before = peak(program, schedule).peak_bytes
    schedule.definitions[program.body.args[0]] = Layout(((), (0,)))
    assert before - peak(program, schedule).peak_bytes == 4 * 8 * 16 / 2


def test_a_padded_definition_is_counted_with_its_padding() -> None:
    program = program_of(lambda x: jnp.sum(x @ x.T), f32(7, 3))
    schedule, (product,) = whole(program, {"x": 4}), ops_of(program, "dot_general")
    schedule.definitions[product.results[0]] = Layout(((0,), ()))
    held = {h.value: h.bytes for h in peak(program, schedule).held}
    assert held[product.results[0]] == 2 * 7 * 4


def unevenly_cut() -> list[Held]:
    """What is held of an input of seven rows on four devices, which a product and a sum behind it read."""
    program = program_of(lambda x: jnp.sum(jnp.tanh(x @ x.T) @ x), f32(7, 3))
    schedule = whole(program, {"x": 4})
    schedule.definitions[program.body.args[0]] = Layout(((0,), ()))
    held = holdings(program, schedule, analyse(program, fuse(program)))
    return [h for h in held if h.value == program.body.args[0]]


def test_an_uneven_input_is_held_as_jax_has_it() -> None:
    (argument,) = (h for h in unevenly_cut() if not h.copy)
    assert argument.bytes == 7 * 3 * 4


def test_the_block_of_an_uneven_input_is_a_copy_beside_it() -> None:
    (block,) = (h for h in unevenly_cut() if h.copy)
    assert (block.what, block.bytes) == ("x, its block", 2 * 3 * 4)


def test_the_block_of_an_uneven_input_is_held_from_its_first_reader_to_its_last() -> None:
    argument, block = unevenly_cut()
    assert (argument.start, block.start, block.stop) == (0, 3, 5) and argument.stop > block.stop


def test_a_private_copy_is_held_while_its_op_runs() -> None:
    program = program_of(mlp, f32(8, 16), f32(16, 8), f32(4, 8))
    schedule = whole(program, {"x": 2})
    w2 = program.body.args[1]
    schedule.definitions[w2] = Layout(((0,), ()))
    second = ops_of(program, "dot_general")[1]
    slot = second.operands.index(w2)
    gather = Step(StepKind.ALL_GATHER, (0,), 0)
    schedule.uses[Use(second.id, slot)] = Reshard(Layout(((0,), ())), Layout(((), ())), (gather,))
    found = peak(program, schedule)
    assert found.peak_bytes == 4 * (8 * 16 + 16 * 8 / 2 + 4 * 8 + 4 * 16 + 4 * 8 + 16 * 8)
    assert any("resharded for dot_general" in h.what and h.bytes == 4 * 16 * 8 for h in found.held)


def test_a_shared_copy_is_held_from_its_first_to_its_last_use() -> None:
    def f(x: Any, w: Any) -> Any:
        return x @ w, jnp.sort(w), x @ x

    program = program_of(f, f32(8, 8), f32(8, 8))
    schedule = whole(program, {"x": 2})
    before = peak(program, schedule).peak_bytes
    x = program.body.args[0]
    schedule.definitions[x] = Layout(((0,), ()))
    schedule.shared[x] = Reshard(Layout(((0,), ())), Layout(((), ())), (Step(StepKind.ALL_GATHER, (0,), 0),))
    assert peak(program, schedule).peak_bytes == before + 4 * 8 * 8 / 2


def gathered_loop() -> tuple[Program, Schedule, Op]:
    """FSDP with the whole stack gathered before the loop."""
    program = program_of(looped, f32(3, 8, 8), f32(4, 8))
    schedule = whole(program, {"x": 2})
    (scan,) = ops_of(program, "scan")
    schedule.definitions[scan.operands[1]] = Layout(((), (0,), ()))
    step = Step(StepKind.ALL_GATHER, (0,), 1)
    schedule.uses[Use(scan.id, 1)] = Reshard(Layout(((), (0,), ())), Layout(((), (), ())), (step,))
    return program, schedule, scan


def test_a_stack_gathered_before_a_loop_is_held_whole_for_the_whole_loop() -> None:
    """The trap of the study: the copy of a stacked parameter is the stack, not a slice of it."""
    program, schedule, scan = gathered_loop()
    copies = [h for h in peak(program, schedule).held if "resharded for scan" in h.what]
    live = analyse(program, fuse(program))
    assert [(h.bytes, h.start, h.stop) for h in copies] == [
        (4 * 3 * 8 * 8, live.span[scan.id][0], live.span[scan.id][1] + 1)
    ]


def test_a_slice_gathered_inside_of_a_loop_is_held_for_one_op() -> None:
    program, schedule, scan = gathered_loop()
    # when tanh is written in the body: half the stack, its copy, x, the carry, the result, the sums of all trips
    assert peak(program, schedule).peak_bytes == 4 * (96 + 192 + 32 + 32 + 32 + 24)
    del schedule.uses[Use(scan.id, 1)]
    argument = scan.regions[0].args[1]
    schedule.definitions[argument] = Layout(((0,), ()))
    (dot,) = ops_of(program, "dot_general")
    step = Step(StepKind.ALL_GATHER, (0,), 0)
    schedule.uses[Use(dot.id, dot.operands.index(argument))] = Reshard(Layout(((0,), ())), Layout(((), ())), (step,))
    # at the matmul in the body: half the stack, one whole slice, x, the carry, the product, the sums of all trips
    assert peak(program, schedule).peak_bytes == 4 * (96 + 64 + 32 + 32 + 32 + 24)


@pytest.mark.parametrize("limit", [None, 4 * (3 * 8 * 8 // 2) + 4 * 8 * 8 + 600])
def test_the_planner_pays_for_the_stack_it_gathers(limit: int | None) -> None:
    """With the weights stored cut and computed whole, a limit below the whole stack moves the gather into the loop."""

    def f(w: Any, x: Any) -> Any:
        return lax.scan(lambda c, wk: (jnp.sort(c @ wk), None), x, w)[0]

    program = program_of(f, f32(3, 8, 8), f32(1, 8))
    pins = [Pin("w", '[{}, {"x"}, {}]'), Pin("dot_general", "[{}, {}]"), Pin("x", "[{}, {}]")]
    model = build_model(problem(program, {"x": 2}, pins=pins, memory_limit=limit))
    decision = decide(model)
    (scan,) = ops_of(program, "scan")
    outside = any(s.kind is StepKind.ALL_GATHER for s in decision.schedule.uses[Use(scan.id, 1)].steps)
    stack = 4 * 3 * 8 * 8
    assert limit is None or decision.memory.peak_bytes <= limit
    if outside:
        assert decision.memory.peak_bytes >= stack + stack / 2
        assert limit is None


def test_the_carry_of_a_loop_is_held_beside_its_start() -> None:
    program = program_of(lambda x: lax.scan(lambda c, _: (jnp.sort(c), None), x, None, length=3)[0], f32(8, 8))
    found = peak(program, whole(program, {"x": 2}))
    # the argument (not donated), the loop's carry, and what the sort writes
    assert found.peak_bytes == 3 * 4 * 8 * 8


def test_an_output_in_another_form_is_held_beside_its_source_at_the_end() -> None:
    program = program_of(lambda x: jnp.sort(x), f32(8, 8))
    schedule = whole(program, {"x": 2})
    (sort,) = ops_of(program, "sort")
    schedule.definitions[sort.results[0]] = Layout(((0,), ()))
    step = Step(StepKind.ALL_GATHER, (0,), 0)
    schedule.uses[Use(PROGRAM, 0)] = Reshard(Layout(((0,), ())), Layout(((), ())), (step,))
    found = peak(program, schedule)
    assert found.peak_bytes == 4 * 8 * 8 * (1 + 0.5 + 1)  # the argument, half the result, the result
    assert [h.what for h in found.held if "resharded" in h.what] == ["sort:0, resharded for output out"]


def test_the_profile_lists_what_is_held_at_the_peak_and_adds_up() -> None:
    program = program_of(mlp, f32(8, 16), f32(16, 8), f32(4, 8))
    found = peak(program, whole(program, {"x": 2}))
    assert sum(h.bytes for h in found.held) == found.peak_bytes
    assert [h.bytes for h in found.held] == sorted((h.bytes for h in found.held), reverse=True)
    assert all(h.start <= found.time < h.stop for h in found.held)


def test_narrow_types_are_counted_in_whole_bytes_at_the_end() -> None:
    import jax

    program = program_of(lambda x: x, jax.ShapeDtypeStruct((7,), jnp.bool_))
    assert peak(program, whole(program, {"x": 2})).peak_bytes == 7 + 7  # and the copy that is returned
