"""Scheduled HLO text as data."""

import pytest
from schedules import line, program

from autoshard.errors import InputError
from autoshard.simulation.scheduled import read_module
from autoshard.simulation.work import at_precision, matmul_flop


def test_text_that_is_no_hlo_is_refused():
    with pytest.raises(InputError, match="no HLO text"):
        read_module("module @step {}")


def test_a_module_without_an_entry_is_refused():
    with pytest.raises(InputError, match="no ENTRY"):
        read_module("HloModule step\n\n%f (x: f32[]) -> f32[] {\n}\n")


def test_an_array_has_its_memory_and_its_size_with_padding():
    module = read_module(program(line("x", "bf16[9,100]{1,0:T(8,128)(2,1)S(1)}", "parameter(0)", root=True)))
    (array,) = module.computations["main"].root.arrays
    assert (array.dtype, array.shape, array.space) == ("bf16", (9, 100), 1)
    assert (array.bytes, array.plain_bytes) == (16 * 128 * 2, 9 * 100 * 2)


def test_cycles_trips_names_and_channels_are_read():
    text = 'fusion(%x), calls=%f, channel_id=7, metadata={op_name="jit(step)/dot_general"}, backend_config=' + (
        '{"estimated_cycles":"12","known_trip_count":{"n":"3"}}'
    )
    module = read_module(program(line("a", "f32[8]", text, root=True)))
    found = module.computations["main"].root
    assert (found.cycles, found.trips, found.channel, found.op_name) == (12, 3, "7", "jit(step)/dot_general")
    assert found.called == ("f",)


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "attributes", "flop"),
    [
        ("f32[8,16]", "f32[16,4]", "f32[8,4]", "dim_labels=bf_io->bf", 2 * 8 * 16 * 4),
        # a batched matmul: the batch is a window whose taps meet one element each
        (
            "f32[5,8,16]", "f32[5,16,4]", "f32[5,8,4]",
            "window={size=5 stride=4 lhs_dilate=5}, dim_labels=0bf_0io->0bf", 2 * 5 * 8 * 16 * 4,
        ),
        # a convolution of width 3 with zeros on both sides: the outer results meet two taps
        ("f32[1,6,2]", "f32[3,2,7]", "f32[1,6,7]", "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f", 2 * 16 * 2 * 7),
    ],
)  # fmt: skip
def test_flop_of_matmuls_and_convolutions_leave_out_zeros(lhs, rhs, out, attributes, flop):
    module = read_module(
        program(
            line("l", lhs, "parameter(0)"),
            line("r", rhs, "parameter(1)"),
            line("c", out, f"convolution(%l, %r), {attributes}", root=True),
        )
    )
    main = module.computations["main"]
    assert matmul_flop(main.root, main) == ("float32", flop)


@pytest.mark.parametrize(
    ("dtype", "attributes", "rate"),
    [
        ("f32", "convolution(%l, %r), dim_labels=bf_io->bf, operand_precision={high,high}", "float32_high"),
        ("f32", "convolution(%l, %r), dim_labels=bf_io->bf, operand_precision={highest,high}", "float32_highest"),
        ("f32", "convolution(%l, %r), dim_labels=bf_io->bf", "float32"),
        ("bf16", "convolution(%l, %r), dim_labels=bf_io->bf, operand_precision={highest,highest}", "bfloat16"),
        (
            "f32",
            'custom-call(%l, %r), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":'
            '{"precision_config":{"operand_precision":["HIGHEST","HIGHEST"]}}}',
            "float32_highest",
        ),
    ],
)
def test_a_matmul_has_the_rate_of_the_precision_that_its_operands_ask_for(dtype, attributes, rate):
    arrays = [line(name, f"{dtype}[8,8]", f"parameter({n})") for n, name in enumerate("lr")]
    main = read_module(program(*arrays, line("c", f"{dtype}[8,8]", attributes, root=True))).computations["main"]
    assert at_precision({"f32": "float32", "bf16": "bfloat16"}[dtype], main.root) == rate
