"""FLOP and seconds of single ops against figures worked out by hand."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import ShapeDtypeStruct, lax
from plan_cases import atoms, f32, machine, ops_of, program_of

from autoshard.api import verbs as api
from autoshard.costs.fusion import analyse
from autoshard.costs.pricing import StepPrices
from autoshard.costs.roofline import local_bytes, op_seconds
from autoshard.costs.work import local_flops, local_sizes
from autoshard.frontends.jax.function import trace
from autoshard.frontends.jax.windows import taps_met
from autoshard.models import build
from autoshard.program.program import Op, Program
from autoshard.verify import check_plan


def single(f: Callable[..., Any], *specs: Any, kind: str) -> tuple[Op, Program]:
    program = program_of(f, *specs)
    (op,) = ops_of(program, kind)
    return op, program


def parts_of(op: Op, cuts: dict[str, int]) -> np.ndarray:
    """[1, factor] parts of each factor; cuts: factor name (i, j, ...) -> parts."""
    assert op.rule is not None
    shards = np.ones((1, len(op.rule.factor_sizes)), np.int64)
    for name, parts in cuts.items():
        shards[0, ord(name) - ord("i")] = parts
    return shards


def flops(op: Op, program: Program, **cuts: int) -> float:
    """FLOP on one device."""
    assert op.rule is not None
    return float(local_flops(op, program, local_sizes(op.rule, parts_of(op, cuts)))[0])


def moved(op: Op, program: Program, **cuts: int) -> float:
    """Bytes read and written in memory on one device."""
    assert op.rule is not None
    return float(local_bytes(op, program, local_sizes(op.rule, parts_of(op, cuts)), analyse(program))[0])


def seconds(op: Op, program: Program, **cuts: int) -> float:
    prices = StepPrices(machine({"x": 4}), atoms({"x": 4}))
    return float(op_seconds(op, program, parts_of(op, cuts), analyse(program), prices)[0])


def test_a_matmul_is_two_flop_per_cell_of_its_iteration_space() -> None:
    op, program = single(lambda x, w: x @ w, f32(8, 32), f32(32, 16), kind="dot_general")
    assert str(op.rule) == "([i, j], [j, k])->([i, k]) {i=8, j=32, k=16} reduction={j}"
    assert flops(op, program) == 2 * 8 * 32 * 16


@pytest.mark.parametrize(("batch", "side"), [(2**9, 2**18), (2**10, 2**18), (1, 2**22)])
def test_matmuls_beyond_whole_numbers_of_64_bits_have_their_flop(batch: int, side: int) -> None:
    array = f32(batch, side, side)
    op, program = single(jnp.matmul, array, array, kind="dot_general")
    assert flops(op, program) == 2.0 * batch * side**3 > 2.0**63


def test_a_factorisation_of_matrices_without_elements_is_no_work() -> None:
    op, program = single(jnp.linalg.cholesky, f32(4, 0, 0), kind="cholesky")
    assert flops(op, program) == 0


@pytest.mark.parametrize("factor", ["i", "j", "k"])
def test_cutting_any_factor_of_a_matmul_divides_its_work(factor: str) -> None:
    op, program = single(lambda x, w: x @ w, f32(8, 32), f32(32, 16), kind="dot_general")
    assert flops(op, program, **{factor: 4}) == 2 * 8 * 32 * 16 / 4


def test_an_axis_that_cuts_no_factor_repeats_the_work() -> None:
    op, program = single(lambda x, w: x @ w, f32(8, 32), f32(32, 16), kind="dot_general")
    assert seconds(op, program) == seconds(op, program, i=1)
    assert flops(op, program) == 2 * 8 * 32 * 16


def test_padding_counts_as_work() -> None:
    op, program = single(lambda x, w: x @ w, f32(7, 32), f32(32, 16), kind="dot_general")
    assert flops(op, program, i=2) == 2 * 4 * 32 * 16


def test_a_batched_matmul_multiplies_by_the_batch() -> None:
    op, program = single(lambda x, y: jnp.einsum("bik,bkj->bij", x, y), f32(3, 4, 5), f32(3, 5, 6), kind="dot_general")
    assert flops(op, program) == 2 * 3 * 4 * 5 * 6


def test_attention_scores_are_two_flop_per_head_query_key_and_depth() -> None:
    q, k = f32(2, 16, 4, 8), f32(2, 16, 4, 8)
    op, program = single(lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k), q, k, kind="dot_general")
    assert flops(op, program) == 2 * 2 * 4 * 16 * 16 * 8


def conv(groups: int = 1, stride: int = 1) -> tuple[Op, Program]:
    def f(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", feature_group_count=groups, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    return single(f, f32(2, 8, 8, 16), f32(3, 3, 16 // groups, 32), kind="conv_general_dilated")


def test_a_convolution_is_two_flop_per_output_window_cell_and_input_channel() -> None:
    assert flops(*conv()) == 2 * (2 * 8 * 8 * 32) * (3 * 3 * 16)


def test_groups_divide_the_work_of_a_convolution() -> None:
    assert flops(*conv(groups=4)) == 2 * (2 * 8 * 8 * 32) * (3 * 3 * 4)


def test_stride_divides_the_work_of_a_convolution() -> None:
    assert flops(*conv(stride=2)) == 2 * (2 * 4 * 4 * 32) * (3 * 3 * 16)


def test_the_gradients_of_a_convolution_cost_what_it_costs() -> None:
    """Forward, input gradient and kernel gradient meet the same cells."""

    def f(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (y * y).sum()

    program = program_of(jax.grad(f, argnums=(0, 1)), f32(2, 8, 8, 16), f32(1, 1, 16, 32))
    assert [flops(op, program) for op in ops_of(program, "conv_general_dilated")] == [2 * 2 * 8 * 8 * 16 * 32] * 3


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_zeros_between_the_elements_of_a_dilated_input_are_no_work(stride: int) -> None:
    """The gradient of a strided convolution by its input meets as many cells as the convolution itself."""

    def f(x: Any, w: Any) -> Any:
        strides = (stride, stride)
        y = lax.conv_general_dilated(x, w, strides, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (y * y).sum()

    program = program_of(jax.grad(f, argnums=(0, 1)), f32(2, 12, 12, 16), f32(stride, stride, 16, 32))
    assert [flops(op, program) for op in ops_of(program, "conv_general_dilated")] == [2 * 2 * 12 * 12 * 16 * 32] * 3


def test_strided_convolutions_and_their_gradients_do_three_times_the_work_of_the_forward_pass() -> None:
    """But for what meets padding; with the zeros of dilation it would be six times."""

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jnp.tanh(lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return (x * x).sum()

    def work(f: Any) -> float:
        program = program_of(f, [f32(3, 3, 16, 16), f32(3, 3, 16, 16)], f32(2, 32, 32, 16))
        return sum(flops(op, program) for op in ops_of(program, "conv_general_dilated"))

    assert work(jax.grad(loss, argnums=(0, 1))) == pytest.approx(3 * work(loss), rel=0.02)


def test_a_multiply_add_of_complex_numbers_is_eight_flop() -> None:
    specs = ShapeDtypeStruct((8, 16), jnp.complex64), ShapeDtypeStruct((16, 4), jnp.complex64)
    assert flops(*single(lambda a, b: a @ b, *specs, kind="dot_general")) == 8 * 8 * 16 * 4


def test_a_fourier_transform_is_five_n_log_n_of_complex_numbers_and_half_of_real_ones() -> None:
    """With n elements of each transform, as FFTW's benchmarks count."""
    whole = single(jnp.fft.fft, ShapeDtypeStruct((4, 256), jnp.complex64), kind="fft")
    plane = single(jnp.fft.fft2, ShapeDtypeStruct((4, 16, 16), jnp.complex64), kind="fft")
    real = single(lambda x: jnp.abs(jnp.fft.rfft(x)), f32(4, 256), kind="fft")
    back = single(lambda x: jnp.fft.irfft(x, 256), ShapeDtypeStruct((4, 129), jnp.complex64), kind="fft")
    assert [flops(*one) for one in (whole, plane, real, back)] == [5 * 1024 * 8] * 2 + [2.5 * 1024 * 8] * 2


@pytest.mark.parametrize("hardware", ["h100", "tpu_v6e@compiler"])
def test_a_plan_with_fourier_transforms_and_complex_matmuls_verifies(hardware: str) -> None:
    def step(x: Any, w: Any) -> Any:
        return jnp.fft.irfft(jnp.fft.rfft(x)[:, :64] @ w, 256)

    plan = api.plan(step, f32(64, 256), ShapeDtypeStruct((64, 64), jnp.complex64), mesh={"x": 4}, hardware=hardware)
    assert check_plan(plan.to_dict()).ok


@given(
    st.integers(1, 9), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(-5, 9)
)  # fmt: skip
def test_taps_that_meet_an_element_are_those_on_the_grid_of_the_dilated_input(
    results: int, taps: int, stride: int, near: int, far: int, low: int
) -> None:
    places = (o * stride + t * far - low for o in range(results) for t in range(taps))
    assert taps_met(results, taps, stride, near, far, low) == sum(place % near == 0 for place in places)


def test_a_reduction_over_windows_takes_every_element_of_each() -> None:
    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")

    assert flops(*single(pooled, f32(2, 9, 9, 4), kind="reduce_window_max")) == 9 * (2 * 4 * 4 * 4)
    back = jax.grad(lambda x: (pooled(x) ** 2).sum())
    assert flops(*single(back, f32(2, 9, 9, 4), kind="select_and_scatter_add")) == 9 * (2 * 4 * 4 * 4)


@pytest.mark.parametrize("hardware", ["h100", "tpu_v5e@compiler", "h100@compiler"])
def test_a_plan_with_a_strided_convolution_and_pooling_verifies(hardware: str) -> None:
    def loss(w: Any, x: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.square(lax.reduce_window(jnp.tanh(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")).sum()

    step = jax.grad(loss, argnums=(0, 1))
    plan = api.plan(step, f32(3, 3, 8, 16), f32(8, 16, 16, 8), mesh={"x": 4}, hardware=hardware)
    assert check_plan(plan.to_dict()).ok


def test_a_ragged_matmul_does_not_pay_for_the_number_of_groups() -> None:
    sizes = ShapeDtypeStruct((4,), jnp.int32)
    op, program = single(lax.ragged_dot, f32(64, 8), f32(4, 8, 16), sizes, kind="ragged_dot_general")
    assert flops(op, program) == 2 * 64 * 8 * 16


@pytest.mark.parametrize("groups", [1, 4, 64])
def test_the_gradients_of_a_ragged_matmul_cost_what_it_costs_whatever_the_number_of_groups(groups: int) -> None:
    def loss(x: Any, w: Any, n: Any) -> Any:
        return lax.ragged_dot(x, w, n).sum()

    sizes = ShapeDtypeStruct((groups,), jnp.int32)
    program = program_of(jax.grad(loss, argnums=(0, 1)), f32(64, 8), f32(groups, 8, 16), sizes)
    assert [flops(op, program) for op in ops_of(program, "ragged_dot_general")] == [2 * 64 * 8 * 16] * 2


def test_a_plan_with_the_gradient_of_a_ragged_matmul_verifies() -> None:
    def step(x: Any, w: Any, n: Any) -> Any:
        return w - jax.grad(lambda w: lax.ragged_dot(x, w, n).sum())(w)

    sizes = ShapeDtypeStruct((4,), jnp.int32)
    plan = api.plan(step, f32(64, 8), f32(4, 8, 16), sizes, mesh={"x": 2}, hardware="tpu_v5e")
    assert check_plan(plan.to_dict()).findings == ()


def test_a_ragged_matmul_of_few_rows_reads_the_groups_that_they_can_meet() -> None:
    """Decoding with experts: 3 rows meet 3 of 64 matrices at most; 100 rows may meet all."""
    sizes = ShapeDtypeStruct((64,), jnp.int32)
    few = single(lax.ragged_dot, f32(3, 8), f32(64, 8, 16), sizes, kind="ragged_dot_general")
    many = single(lax.ragged_dot, f32(100, 8), f32(64, 8, 16), sizes, kind="ragged_dot_general")
    assert moved(*few) == 4 * (3 * 8 + 3 * 8 * 16 + 64 + 3 * 16)
    assert moved(*many) == 4 * (100 * 8 + 64 * 8 * 16 + 64 + 100 * 16)


@pytest.mark.parametrize("rows", [0, 8])
def test_a_ragged_matmul_without_groups_is_planned_and_verifies(rows: int) -> None:
    sizes = ShapeDtypeStruct((0,), jnp.int32)
    plan = api.plan(lax.ragged_dot, f32(rows, 4), f32(0, 4, 2), sizes, mesh={"x": 2}, hardware="tpu_v5e")
    assert check_plan(plan.to_dict()).findings == ()


def test_experts_over_devices_are_met_by_all_rows_on_each() -> None:
    sizes = ShapeDtypeStruct((64,), jnp.int32)
    op, program = single(lax.ragged_dot, f32(3, 8), f32(64, 8, 16), sizes, kind="ragged_dot_general")
    assert op.rule is not None
    parts = np.ones((1, len(op.rule.factor_sizes)), np.int64)
    parts[0, op.rule.operands[1][0][0]] = 32  # 2 experts on a device, for 3 rows
    found = local_bytes(op, program, local_sizes(op.rule, parts), analyse(program))
    assert float(found[0]) == 4 * (3 * 8 + 2 * 8 * 16 + 64 + 3 * 16)


def test_the_gradient_of_experts_writes_all_of_them() -> None:
    sizes = ShapeDtypeStruct((64,), jnp.int32)

    def f(w: Any, x: Any, n: Any) -> Any:
        return lax.ragged_dot(x, w, n).sum()

    program = program_of(jax.grad(f), f32(64, 8, 16), f32(3, 8), sizes)
    (op,) = ops_of(program, "ragged_dot_general")
    assert moved(op, program) >= 4 * 64 * 8 * 16


def test_a_reduction_is_one_flop_per_element_it_reads() -> None:
    op, program = single(lambda x: x.sum(axis=0), f32(8, 4), kind="reduce_sum")
    assert flops(op, program) == 8 * 4


@pytest.mark.parametrize("hardware", ["tpu_v5e", "tpu_v5e@compiler"])
def test_a_reduction_with_a_reducer_of_its_own_is_one_as_well(hardware: str) -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.reduce(x @ w, np.float32(1), lambda a, b: a * b + a + b, (0,)) * 2.0 + w

    op, program = single(f, f32(64, 32), f32(32, 32), kind="reduce")
    assert flops(op, program) == 64 * 32 + 1
    plan = api.plan(f, f32(64, 32), f32(32, 32), mesh={"x": 2}, hardware=hardware)
    assert check_plan(plan.to_dict()).findings == ()


@pytest.mark.parametrize(("shape", "dimension"), [((1024, 8), 1), ((8, 1024), 0), ((4, 8, 1024), 1)])
def test_a_sort_compares_each_element_as_often_as_what_is_sorted_halves(shape: tuple[int, ...], dimension: int) -> None:
    op, program = single(lambda x: lax.sort(x, dimension=dimension), f32(*shape), kind="sort")
    assert flops(op, program) == 3 * np.prod(shape)


def test_picking_the_best_of_few_experts_does_not_pay_for_the_number_of_rows() -> None:
    op, program = single(lambda x: lax.top_k(x, 2), f32(65536, 8), kind="top_k")
    assert flops(op, program) == 3 * 65536 * 8


def test_a_plan_with_sorted_rows_verifies() -> None:
    def f(x: Any) -> Any:
        return lax.sort(x, dimension=0), lax.top_k(x, 2), lax.approx_max_k(x, 2)

    plan = api.plan(f, f32(4, 1024), mesh={"x": 2}, hardware="tpu_v5e")
    assert check_plan(plan.to_dict()).findings == ()


def test_a_pointwise_op_is_priced_by_its_function() -> None:
    add, tanh = (single(f, f32(8, 4), kind=kind) for f, kind in ((lambda x: x + x, "add"), (jnp.tanh, "tanh")))
    assert flops(*add) == 8 * 4
    assert flops(*tanh) == 10 * 8 * 4


def test_scatter_and_gather_touch_what_they_move_and_not_the_table() -> None:
    index = ShapeDtypeStruct((4,), jnp.int32)
    op, program = single(lambda t, i: t.at[i].get(mode="clip"), f32(1000, 8), index, kind="gather")
    assert 2 * 4 * 8 * 4 <= moved(op, program) < 2 * 4 * 8 * 4 + 4 * 4 * 4  # rows out and in, and the indices
    assert moved(op, program) < 1000 * 8 * 4


def test_an_operand_that_is_given_twice_is_read_once() -> None:
    product = single(lambda x: x * x, f32(8, 4), kind="mul")
    assert moved(*product) == moved(*single(jnp.square, f32(8, 4), kind="square")) == 2 * 4 * 8 * 4


def test_an_operand_that_is_read_along_two_dimensions_is_read_twice() -> None:
    op, program = single(lambda x: jnp.einsum("ik,jk->ij", x, x), f32(8, 4), kind="dot_general")
    assert moved(op, program) == 4 * (2 * 8 * 4 + 8 * 8)


@pytest.mark.parametrize(
    ("sliced", "elements"),
    [
        (lambda x: x[2] + 1, 128),
        (lambda x: x[8:24] + 1, 16 * 128),
        (lambda x: x[8:24, :32] + 1, 16 * 32),
        (lambda x: x[:, ::2] + 1, 64 * 128),  # lines of memory are read whole
        (lambda x: x[2:10, ::2] + 1, 8 * 128),
    ],
)
def test_a_slice_reads_the_run_that_it_takes(sliced: Callable[..., Any], elements: int) -> None:
    op, program = single(sliced, f32(64, 128), kind="slice")
    assert moved(op, program) == 4 * elements


def test_a_slice_of_what_is_cut_reads_no_more_than_the_block() -> None:
    op, program = single(lambda x: x[:16] + 1, f32(64, 128), kind="slice")
    assert moved(op, program, i=16) == 4 * 4 * 128


def test_a_large_matmul_takes_its_flop_over_the_peak() -> None:
    wide = [ShapeDtypeStruct((4096, 4096), jnp.bfloat16)] * 2
    op, program = single(lambda x, w: x @ w, *wide, kind="dot_general")
    assert seconds(op, program) == pytest.approx(2 * 4096**3 / 1.97e14, rel=0.01)  # tpu_v5e, bf16


def test_a_thin_matmul_takes_its_bytes_over_the_memory_bandwidth() -> None:
    x, w = ShapeDtypeStruct((1, 4096), jnp.bfloat16), ShapeDtypeStruct((4096, 4096), jnp.bfloat16)
    op, program = single(lambda x, w: x @ w, x, w, kind="dot_general")
    assert seconds(op, program) == pytest.approx(2 * 4096 * 4096 / 8.1e11, rel=0.02)  # tpu_v5e, HBM


@pytest.mark.parametrize("name", ["mlp", "transformer", "moe", "resnet"])
def test_no_op_of_a_train_step_is_free_but_what_fuses_away(name: str) -> None:
    model = build(name)
    program = trace(model.step, *model.specs, argnames=model.argnames).program
    fusion = analyse(program)
    prices = StepPrices(machine({"x": 1}), atoms({"x": 1}))
    free = set()
    for op, _ in program.walk():
        if op.rule is not None:
            shards = np.ones((1, len(op.rule.factor_sizes)), np.int64)
            if not op_seconds(op, program, shards, fusion, prices)[0] > 0:
                free.add(op.kind)
                assert not any(r in fusion for r in op.results), f"{op.kind}:{op.id} writes memory at no cost"
    # they move data only, and fuse into what reads them
    assert free <= {
        "broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "slice", "pad", "iota", "rev", "copy",
        "dynamic_slice", "bitcast_convert_type", "optimization_barrier", "split", "concatenate",
    }, free  # fmt: skip
