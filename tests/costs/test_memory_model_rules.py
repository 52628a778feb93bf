"""Rules of the memory model one at a time: products held as their epilogue, copies that replace, loops, tiles."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from plan_cases import atoms, f32, ops_of, program_of, whole

from autoshard.costs.fusion import analyse as fuse
from autoshard.costs.liveness import analyse
from autoshard.costs.memory import HEADROOM, MemoryProfile, simulate, sizes
from autoshard.costs.padding import image_dims, padded_elements
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard, Step, StepKind

M = f32(64, 64)


def held(f: Callable[..., Any], *specs: Any) -> list[str]:
    """Kinds of ops whose results take memory of their own, outputs apart."""
    program = program_of(f, *specs)
    fusion, outputs = fuse(program), set(program.body.results)
    return [op.kind for op, _ in program.walk() if any(r in fusion.held and r not in outputs for r in op.results)]


def test_r4_a_product_is_held_as_what_its_pointwise_uses_lead_to() -> None:
    """GELU-like: h + b is used three times, and all of it meets in one product."""

    def f(x: Any, w: Any, b: Any) -> Any:
        h = x @ w + b
        return (0.5 * h * (1.0 + jnp.tanh(h))) @ w

    assert held(f, M, M, f32(64)) == ["mul"]


def test_r4_not_where_something_else_reads_the_product() -> None:
    assert held(lambda x, w: jnp.tanh(x @ w) @ (x @ w), M, M).count("dot_general") >= 1
    assert held(lambda x, w: (lambda h: jnp.tanh(h) @ jnp.sort(h))(x @ w), M, M) == ["dot_general", "sort"]


def test_r4_not_for_a_wider_value_nor_for_converts_and_reshapes_alone() -> None:
    half = jax.ShapeDtypeStruct((64, 64), jnp.bfloat16)
    assert held(lambda x, w: jnp.sort(jnp.tanh((x @ w).astype(jnp.float32)) @ w), half, half).count("dot_general") == 2
    assert held(lambda x, w: (x @ w).reshape(32, 128).T @ x.reshape(32, 128), M, M) == ["dot_general"]


def profile(program: Program, schedule: Schedule) -> MemoryProfile:
    return simulate(program, schedule, analyse(program, fuse(program)))


def late_gradient(kind: StepKind) -> tuple[Program, Schedule]:
    """A product (1) that is read after two sorts (2, 3) by two ops (4, 5), summed for all of its uses."""

    def f(x: Any, w: Any) -> Any:
        g = x @ w
        s = jnp.sort(jnp.sort(w))
        return jnp.cumsum(g), jnp.sort(g), s

    program = program_of(f, M, M)
    schedule = whole(program, {"x": 4})
    (dot,) = ops_of(program, "dot_general")
    partial = Layout(((), ()), (0,))
    target = Layout(((0,), ())) if kind is StepKind.REDUCE_SCATTER else Layout(((), ()))
    schedule.definitions[dot.results[0]] = partial
    dim = 0 if kind is StepKind.REDUCE_SCATTER else -1
    schedule.shared[dot.results[0]] = Reshard(partial, target, (Step(kind, (0,), dim),))
    return program, schedule


def of_the_product(program: Program, schedule: Schedule) -> dict[bool, tuple[int, int, int]]:
    """Is it the copy? -> start, stop, bytes."""
    live = analyse(program, fuse(program), schedule, sizes(program, schedule.mesh))
    (dot,) = ops_of(program, "dot_general")
    size = sizes(program, schedule.mesh)
    out = {}
    if dot.results[0] in live.interval:
        out[False] = (*live.interval[dot.results[0]], size(dot.results[0], schedule.definitions[dot.results[0]]))
    out[True] = (*live.shared[dot.results[0]], size(dot.results[0], schedule.shared[dot.results[0]].target))
    return out


def test_a_reduce_scatter_runs_when_its_operand_is_there_and_frees_it() -> None:
    """The gradient of FSDP: whole for one op, then a quarter of it until its last reader."""
    found = of_the_product(*late_gradient(StepKind.REDUCE_SCATTER))
    assert found[False] == (1, 2, 4 * 64 * 64)
    assert found[True][0] == 1 and found[True][1] > 5 and found[True][2] == 64 * 64


def test_an_all_reduce_works_in_place() -> None:
    found = of_the_product(*late_gradient(StepKind.ALL_REDUCE))
    assert False not in found
    assert found[True][0] == 1 and found[True][2] == 4 * 64 * 64


def test_an_all_reduce_whose_result_is_sliced_is_whole_for_a_moment() -> None:
    """As a reduce-scatter of the same two layouts: nothing is cut before the sum is there."""
    program, schedule = late_gradient(StepKind.ALL_REDUCE)
    (dot,) = ops_of(program, "dot_general")
    summed = schedule.shared[dot.results[0]]
    cut = Layout(((0,), ()))
    slices = (*summed.steps, Step(StepKind.SLICE, (0,), 0))
    schedule.shared[dot.results[0]] = Reshard(summed.source, cut, slices)
    found = of_the_product(program, schedule)
    assert found[False] == (1, 2, 4 * 64 * 64)
    assert found[True][0] == 1 and found[True][2] == 64 * 64


def test_a_larger_copy_is_made_when_it_is_first_read() -> None:
    program, schedule = late_gradient(StepKind.ALL_REDUCE)
    (dot,) = ops_of(program, "dot_general")
    cut = Layout(((0,), ()))
    schedule.definitions[dot.results[0]] = cut
    gather = Step(StepKind.ALL_GATHER, (0,), 0)
    schedule.shared[dot.results[0]] = Reshard(cut, Layout(((), ())), (gather,))
    found = of_the_product(program, schedule)
    first = min(
        analyse(program, fuse(program)).time[op.id] for op, _ in program.walk() if dot.results[0] in op.operands
    )
    assert found[False] == (1, first + 1, 64 * 64)
    assert found[True][0] == first


def updated(f: Callable[..., Any], *specs: Any) -> int:
    """Arrays of the size of M that are held at the peak."""
    program = program_of(f, *specs)
    return profile(program, whole(program, {"x": 2})).peak_bytes // (4 * 64 * 64)


def test_an_update_is_written_over_the_array_that_it_changes() -> None:
    assert updated(lambda x, u: lax.dynamic_update_slice(jnp.sort(x), u, (3, 0)), M, f32(8, 64)) == 2
    assert updated(lambda x, u: jnp.sort(x).at[3].set(u), M, f32(64)) == 2
    assert updated(lambda x, u: jnp.sort(x).at[3].add(u), M, f32(64)) == 2


def test_an_update_of_an_array_that_is_read_later_is_an_array_of_its_own() -> None:
    def f(x: Any, u: Any) -> Any:
        s = jnp.sort(x)
        return lax.dynamic_update_slice(s, u, (3, 0)), s.sum()

    assert updated(f, M, f32(8, 64)) == 3


@pytest.mark.parametrize(("rows", "arrays"), [(8, 1), (32, 1), (40, 2)])
def test_a_part_along_a_cut_dimension_is_written_into_a_copy_where_it_is_longer_than_a_block(
    rows: int, arrays: int
) -> None:
    program = program_of(lambda x, u: lax.dynamic_update_slice(jnp.sort(x), u, (3, 0)), M, f32(rows, 64))
    schedule = whole(program, {"x": 2})
    (op,) = ops_of(program, "dynamic_update_slice")
    schedule.definitions[op.results[0]] = schedule.definitions[op.operands[0]] = Layout(((0,), ()))
    assert profile(program, schedule).peak_bytes == 4 * 64 * (64 + arrays * 32 + rows)


def test_an_array_whose_rows_are_put_into_another_order_is_copied() -> None:
    rows = jax.ShapeDtypeStruct((64,), jnp.int32)
    assert updated(lambda x, i: (lambda s: s.at[i].set(s, mode="clip"))(jnp.sort(x)), M, rows) == 3


def test_an_argument_that_is_not_donated_is_not_written_over() -> None:
    assert updated(lambda x, u: lax.dynamic_update_slice(x, u, (3, 0)), M, f32(8, 64)) == 2


def test_a_slice_that_only_goes_onto_a_stack_takes_no_memory_of_its_own() -> None:
    def f(x: Any, xs: Any) -> Any:
        return lax.scan(lambda c, a: (jnp.sort(c), jnp.cumsum(a, axis=0)), x, xs)

    program = program_of(f, M, f32(3, 64, 64))
    live = analyse(program, fuse(program))
    (scan,) = ops_of(program, "scan")
    (stacked,) = ops_of(program, "cumsum")
    assert stacked.results[0] not in live.interval
    assert live.interval[scan.results[1]][0] == live.span[scan.id][0]


def test_a_carry_is_held_until_its_last_reader_in_the_body() -> None:
    def f(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            return jnp.sort(jnp.sort(jnp.sort(c))), None

        return lax.scan(body, x, None, length=3)[0]

    program = program_of(f, M)
    live = analyse(program, fuse(program))
    (scan,) = ops_of(program, "scan")
    start = live.span[scan.id][0]
    assert live.interval[scan.regions[0].args[0]] == (start + 1, start + 2)


def convolution() -> Program:
    def f(x: Any, k: Any) -> Any:
        y = lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.sort(jax.nn.relu(y))

    return program_of(f, f32(32, 8, 8, 16), f32(3, 3, 16, 64))


def test_channels_of_images_fill_lanes_and_the_batch_fills_rows() -> None:
    """As the TPU compiler lays out float32[32,112,112,64]: 196 MiB where the elements are 98 MiB."""
    assert padded_elements((32, 112, 112, 64), (3, 0), (8, 128)) * 4 == 196 * 2**20
    assert padded_elements((128, 8, 8, 3), (3, 0), (8, 128)) == 128 * 8 * 8 * 4  # the batch along the lanes


def test_only_results_shaped_as_images_are_padded() -> None:
    program = convolution()
    images = image_dims(program)
    assert set(images.values()) == {(3, 0)}
    assert not set(images) & set(program.body.args)
    tiled = sizes(program, atoms({"x": 2}), (8, 128))
    plain = sizes(program, atoms({"x": 2}))
    (conv,) = ops_of(program, "conv_general_dilated")
    image, x = conv.results[0], program.body.args[0]
    layout = Layout.replicated(4)
    assert tiled(image, layout) == 2 * plain(image, layout)
    assert tiled(x, layout) == plain(x, layout)


@pytest.mark.parametrize(("memory", "fits"), [(1150, True), (1149, False)])
def test_a_plan_fits_with_headroom(memory: int, fits: bool) -> None:
    assert HEADROOM == 0.15
    assert MemoryProfile(1000, 0, "", ()).fits(memory) == fits
