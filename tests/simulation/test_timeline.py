"""A compiled schedule on the clock: what runs beside the core, what it waits for, and how often."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from schedules import computation, line, program

from autoshard.costmodels import load_profile, place_mesh
from autoshard.simulation.clock import CORE, MATMUL
from autoshard.simulation.scheduled import read_module
from autoshard.simulation.timeline import Timeline, timeline

MACHINE = place_mesh(load_profile("tpu_v5e"), {"x": 4})
VECTOR = "f32[1048576]{0:T(1024)S(1)}"
GATHERED = "f32[4194304]{0:T(1024)S(1)}"
GROUPS = "replica_groups={{0,1,2,3}}, dimensions={0}"
GATHER_S = MACHINE.collective_s("all_gather", 4 * 4194304, MACHINE.whole("x"))


def run(text: str, clock: str = "cycles") -> Timeline:
    return timeline(read_module(text), MACHINE, clock)  # type: ignore[arg-type]


def test_work_takes_the_cycles_that_the_compiler_expects():
    found = run(program(line("x", VECTOR, "parameter(0)"), line("a", VECTOR, "add(%x, %x)", 1e-3, root=True)))
    assert found.seconds == pytest.approx(1e-3, rel=1e-6)


def test_a_collective_without_a_start_is_waited_for_at_once():
    found = run(
        program(
            line("x", VECTOR, "parameter(0)"),
            line("g", GATHERED, f"all-gather(%x), {GROUPS}"),
            line("a", VECTOR, "add(%x, %x)", 1e-3, root=True),
        )
    )
    assert found.seconds == pytest.approx(1e-3 + GATHER_S)
    assert found.exposed_s == pytest.approx(GATHER_S)


def test_a_collective_with_a_start_runs_beside_the_work_before_its_done():
    found = run(
        program(
            line("x", VECTOR, "parameter(0)"),
            line("s", f"({VECTOR}, {GATHERED})", f"all-gather-start(%x), {GROUPS}"),
            line("a", VECTOR, "add(%x, %x)", GATHER_S / 4),
            line("d", GATHERED, "all-gather-done(%s)", root=True),
        )
    )
    assert found.seconds == pytest.approx(GATHER_S)
    assert found.exposed_s == pytest.approx(GATHER_S * 3 / 4, rel=1e-4)


def test_collectives_that_share_a_link_take_turns():
    start = f"all-gather-start(%x), {GROUPS}"
    found = run(
        program(
            line("x", VECTOR, "parameter(0)"),
            line("s", f"({VECTOR}, {GATHERED})", start),
            line("t", f"({VECTOR}, {GATHERED})", start),
            line("d", GATHERED, "all-gather-done(%t)"),
            line("e", GATHERED, "all-gather-done(%s)", root=True),
        )
    )
    assert found.seconds == pytest.approx(2 * GATHER_S)


def test_an_all_reduce_scatter_of_the_compiler_is_a_reduce_scatter():
    fused = computation(
        "all-reduce-scatter.1",
        line("p", GATHERED, "parameter(0)"),
        line("r", GATHERED, "all-reduce(%p), replica_groups={{0,1,2,3}}, to_apply=%add"),
        line("o", VECTOR, "dynamic-slice(%r)", root=True),
    )
    found = run(
        program(
            line("x", GATHERED, "parameter(0)"),
            line("f", VECTOR, "fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1", root=True),
            before=fused,
        )
    )
    (one,) = found.collectives()
    assert (one.kind, one.bytes) == ("reduce_scatter", 4 * 4194304)


def test_the_parts_of_a_collective_that_is_fused_with_work_are_one_collective():
    gather = line("g", GATHERED, f"all-gather(%p), channel_id=8, {GROUPS}")
    parts = [
        computation(f"part.{k}", line("p", VECTOR, "parameter(0)"), gather, *more)
        for k, more in enumerate(
            [
                [line("c", GATHERED, 'custom-call(%g), custom_call_target="AsyncCollectiveStart"', root=True)],
                [line("w", VECTOR, "add(%p, %p)", root=True)],
                [line("c", GATHERED, 'custom-call(%g), custom_call_target="AsyncCollectiveDone"', root=True)],
            ]
        )
    ]
    found = run(
        program(
            line("x", VECTOR, "parameter(0)"),
            line("s", GATHERED, "fusion(%x), kind=kCustom, calls=%part.0"),
            line("w", VECTOR, "fusion(%x), kind=kCustom, calls=%part.1", GATHER_S / 2),
            line("d", GATHERED, "fusion(%s), kind=kCustom, calls=%part.2", root=True),
            before="".join(parts),
        )
    )
    assert len(found.collectives()) == 1
    assert found.seconds == pytest.approx(GATHER_S)


def _loop(trips: str, body_s: float, around: Sequence[str] = ()) -> str:
    """A loop from 2 on; around: a line before it, and one behind it."""
    state = f"(s32[], {VECTOR})"
    body = computation(
        "body",
        line("p", state, "parameter(0)"),
        line("i", "s32[]", "get-tuple-element(%p), index=0"),
        line("v", VECTOR, "get-tuple-element(%p), index=1"),
        line("one", "s32[]", "constant(1)"),
        line("next", "s32[]", "add(%i, %one)"),
        line("w", VECTOR, "add(%v, %v)", body_s),
        line("t", state, "tuple(%next, %w)", root=True),
    )
    condition = computation(
        "condition",
        line("p", state, "parameter(0)"),
        line("i", "s32[]", "get-tuple-element(%p), index=0"),
        line("n", "s32[]", trips),
        line("lt", "pred[]", "compare(%i, %n), direction=LT", root=True),
    )
    return program(
        line("x", VECTOR, "parameter(0)"),
        line("zero", "s32[]", "constant(2)"),
        *around[:1],
        line("t", state, "tuple(%zero, %x)"),
        line("l", state, "while(%t), condition=%condition, body=%body", root=not around),
        *around[1:],
        before=body + condition,
    )


def test_trips_of_a_loop_are_read_off_its_counter():
    found = run(_loop("constant(12)", 1e-3))
    assert found.seconds == pytest.approx(10e-3, rel=1e-5)
    assert found.total("other work") == pytest.approx(10e-3, rel=1e-5)


def test_a_loop_without_trips_takes_no_time():
    assert run(_loop("constant(2)", 1e-3)).seconds == 0


def test_what_was_sent_before_a_loop_is_there_when_its_many_trips_are_done():
    start = line("s", f"({VECTOR}, {GATHERED})", f"all-gather-start(%x), {GROUPS}")
    found = run(_loop("constant(102)", GATHER_S / 10, [start, line("d", GATHERED, "all-gather-done(%s)", root=True)]))
    assert found.seconds == pytest.approx(10 * GATHER_S, rel=1e-4)
    assert found.exposed_s == 0


def test_a_link_that_was_busy_before_a_loop_is_free_when_its_many_trips_are_done():
    start = line("s", f"({VECTOR}, {GATHERED})", f"all-gather-start(%x), {GROUPS}")
    found = run(
        _loop("constant(102)", GATHER_S / 10, [start, line("g", GATHERED, f"all-gather(%x), {GROUPS}", root=True)])
    )
    assert found.seconds == pytest.approx(11 * GATHER_S, rel=1e-4)


def test_a_loop_of_unknown_trips_is_told():
    found = run(_loop("parameter(1)", 1e-3))
    assert found.unknown_loops == ("l",)
    assert found.seconds == pytest.approx(1e-3, rel=1e-5)


def test_the_longest_branch_counts():
    branches = "".join(
        computation(f"b{k}", line("p", VECTOR, "parameter(0)"), line("w", VECTOR, "add(%p, %p)", s, root=True))
        for k, s in enumerate((1e-3, 3e-3, 2e-3))
    )
    found = run(
        program(
            line("x", VECTOR, "parameter(0)"),
            line("c", VECTOR, "conditional(%x, %x, %x, %x), branch_computations={%b0, %b1, %b2}", root=True),
            before=branches,
        )
    )
    assert found.seconds == pytest.approx(3e-3, rel=1e-5)


def test_work_in_the_main_memory_takes_no_more_than_its_bytes_at_a_usual_rate():
    in_hbm = "f32[4194304]{0:T(1024)}"
    text = program(line("x", in_hbm, "parameter(0)"), line("a", in_hbm, "add(%x, %x)", 1.0, root=True))
    bytes_s = 3 * 4 * 4194304 / MACHINE.profile.memory.bandwidth.value
    assert run(text, "roofline").seconds == pytest.approx(bytes_s)
    assert run(text, "expected").seconds == pytest.approx(bytes_s / 0.85)
    assert run(text, "cycles").seconds == pytest.approx(1.0)


def test_the_core_lives_one_thing_at_a_time():
    found = run(_loop("constant(5)", 1e-3))
    mine = [e for e in found.events if e.track == CORE]
    assert all(a.stop_s <= b.start_s + 1e-12 for a, b in pairwise(mine))


def test_a_matmul_does_not_move_what_a_collective_fused_with_it_gathers():
    """The gathered array goes through the fusion in place: the links fill it, the core neither reads nor writes it."""
    out, state = "bf16[128,128]{1,0}", "f32[67108864]{0:T(1024)}"
    results = f"({out}, {state}, {state})"
    fused = computation(
        "fused",
        line("x", out, "parameter(0)"),
        line("w", out, "parameter(1)"),
        line("part", VECTOR, "parameter(2)"),
        line("whole", state, "parameter(3)"),
        line("m", out, "convolution(%x, %w), dim_labels=bf_io->bf"),
        line("g", state, f"all-gather(%part), channel_id=8, {GROUPS}"),
        line("t", results, "tuple(%m, %whole, %g)", root=True),
    )
    entry = [
        line("x", out, "parameter(0)"),
        line("part", VECTOR, "parameter(1)"),
        line("whole", state, "parameter(2)"),
        line("f", results, "fusion(%x, %x, %part, %whole), kind=kOutput, calls=%fused", 1e-4, root=True),
    ]
    (one,) = [e for e in run(program(*entry, before=fused)).events if e.kind == MATMUL]
    assert one.bytes == 3 * 2 * 128 * 128
    assert one.seconds == pytest.approx(1e-4, rel=1e-5)


LAYERS = "bf16[8,1048576]{1,0:T(8,128)(2,1)}"
LAYER = "bf16[1,1048576]{1,0:T(8,128)(2,1)}"
ON_CHIP = "f32[1048576]{0:T(1024)S(1)}"
IN_HBM = "f32[1048576]{0:T(1024)}"
RATE = MACHINE.profile.memory.bandwidth.value
COPY_S = 4 * 1048576 / RATE


def test_a_fusion_reads_of_an_array_the_slice_that_a_fusion_within_it_takes():
    inner = computation(
        "sliced",
        line("p", LAYERS, "parameter(0)"),
        line("at", "s32[]", "parameter(1)"),
        line("s", LAYER, "dynamic-slice(%p, %at, %at), dynamic_slice_sizes={1,1048576}"),
        line("b", "bf16[1048576]{0:T(1024)(128)(2,1)}", "bitcast(%s)", root=True),
    )
    outer = computation(
        "used",
        line("q", LAYERS, "parameter(0)"),
        line("at", "s32[]", "parameter(1)"),
        line("w", "bf16[1048576]{0:T(1024)(128)(2,1)}", "fusion(%q, %at), kind=kLoop, calls=%sliced"),
        line("c", VECTOR, "convert(%w)", root=True),
    )
    found = run(
        program(
            line("x", LAYERS, "parameter(0)"),
            line("i", "s32[]{:T(128)S(6)}", "parameter(1)"),
            line("f", VECTOR, "fusion(%x, %i), kind=kLoop, calls=%used", 1e-3, root=True),
            before=inner + "\n" + outer,
        ),
        "roofline",
    )
    assert found.events[0].bytes == 2 * 1048576


def test_work_on_the_chip_takes_no_longer_than_the_same_in_memory():
    def seconds(where: str) -> float:
        lines = line("x", where, "parameter(0)"), line("a", where, "negate(%x)", 1.0, root=True)
        return run(program(*lines), "expected").seconds

    assert seconds(ON_CHIP) == pytest.approx(seconds(IN_HBM)) == pytest.approx(2 * COPY_S / 0.85)


def test_a_copy_beside_work_on_the_chip_has_the_whole_rate_of_the_memory():
    found = run(
        program(
            line("x", IN_HBM, "parameter(0)"),
            line("v", ON_CHIP, "parameter(1)"),
            line("s", f"({ON_CHIP}, {IN_HBM}, u32[]{{:S(2)}})", "copy-start(%x)"),
            line("a", ON_CHIP, "add(%v, %v)", COPY_S / 4),
            line("d", ON_CHIP, "copy-done(%s)", root=True),
        )
    )
    assert found.seconds == pytest.approx(COPY_S, rel=1e-4)


def test_a_copy_beside_work_in_memory_has_what_the_work_leaves_of_the_rate():
    reads = 4 * 1048576
    found = run(
        program(
            line("x", IN_HBM, "parameter(0)"),
            line("v", IN_HBM, "parameter(1)"),
            line("s", f"({ON_CHIP}, {IN_HBM}, u32[]{{:S(2)}})", "copy-start(%x)"),
            line("a", ON_CHIP, "negate(%v)", 1.5 * reads / RATE),  # moves at two thirds of the rate
            line("d", ON_CHIP, "copy-done(%s)", root=True),
        )
    )
    assert found.seconds == pytest.approx(2 * reads / RATE, rel=1e-4)


def test_a_copy_from_memory_to_memory_crosses_it_twice():
    found = run(
        program(
            line("x", IN_HBM, "parameter(0)"),
            line("s", f"({IN_HBM}, {IN_HBM}, u32[]{{:S(2)}})", "copy-start(%x)"),
            line("d", IN_HBM, "copy-done(%s)", root=True),
        )
    )
    assert found.seconds == pytest.approx(2 * COPY_S, rel=1e-6)


def test_an_allocation_takes_no_time():
    found = run(program(line("x", IN_HBM, 'custom-call(), custom_call_target="AllocateBuffer"', root=True)), "expected")
    assert found.seconds == 0.0
