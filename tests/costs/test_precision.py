"""Matmuls that ask for more than the default precision take as much longer as their machine takes for it."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct, lax
from plan_cases import f32

import autoshard
from autoshard.costmodels import list_profiles, load_profile

SQUARE = f32(4096, 4096)
TPUS = ("tpu_v3", "tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_v7x")
RAGGED = f32(32768, 1024), f32(4, 1024, 4096), ShapeDtypeStruct((4,), jnp.int32)


def dot(precision: Any) -> Any:
    return lambda x, w: jnp.matmul(x, w, precision=precision)


def planned(function: Any, *specs: Any, hardware: str = "tpu_v5e") -> Any:
    return autoshard.plan(function, *specs, mesh={"x": 1}, hardware=hardware, memory_limit="none")


def seconds(function: Any, *specs: Any, hardware: str = "tpu_v5e") -> float:
    return float(planned(function, *specs, hardware=hardware).cost.step_s)


@pytest.mark.parametrize("hardware", TPUS)
@pytest.mark.parametrize(("precision", "passes"), [("high", 3), ("highest", 6), ("BF16_BF16_F32_X3", 3)])
def test_float32_is_multiplied_in_as_many_passes_of_bfloat16_on_tpus(
    hardware: str, precision: str, passes: int
) -> None:
    asked: Any = getattr(lax.DotAlgorithmPreset, precision, precision)
    once = seconds(dot(None), SQUARE, SQUARE, hardware=hardware)
    assert seconds(dot(asked), SQUARE, SQUARE, hardware=hardware) == pytest.approx(passes * once, rel=1e-3)


def test_bfloat16_is_multiplied_once_at_every_precision() -> None:
    half = ShapeDtypeStruct((4096, 4096), jnp.bfloat16)
    assert seconds(dot("highest"), half, half) == seconds(dot(None), half, half)


def test_the_setting_of_jax_counts_as_a_precision_that_is_asked_for() -> None:
    with jax.default_matmul_precision("highest"):
        set_for_all = seconds(dot(None), SQUARE, SQUARE)
    assert set_for_all == seconds(dot("highest"), SQUARE, SQUARE)


def test_the_higher_precision_of_two_operands_counts() -> None:
    assert seconds(dot(("highest", "high")), SQUARE, SQUARE) == seconds(dot("highest"), SQUARE, SQUARE)


def test_convolutions_and_ragged_matmuls_take_as_many_passes() -> None:
    def conv(precision: Any) -> Any:
        return lambda x, k: lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision=precision
        )

    image = f32(64, 28, 28, 512), f32(3, 3, 512, 512)
    assert seconds(conv("highest"), *image) == pytest.approx(6 * seconds(conv(None), *image), rel=1e-3)

    def ragged(precision: Any) -> Any:
        return lambda x, w, sizes: lax.ragged_dot(x, w, sizes, precision=precision)

    assert seconds(ragged("highest"), *RAGGED) == pytest.approx(6 * seconds(ragged(None), *RAGGED), rel=1e-3)


def test_nvidia_leaves_the_tensor_cores_at_highest_alone() -> None:
    h100 = load_profile("h100")
    tf32, high, highest = (seconds(dot(p), SQUARE, SQUARE, hardware="h100") for p in (None, "high", "highest"))
    assert high == tf32
    assert highest == pytest.approx(tf32 * h100.peak_flops["f32"].value / h100.vector_flops.value)


@pytest.mark.parametrize("hardware", sorted(set(list_profiles()) - set(TPUS)))
def test_no_machine_is_quicker_at_a_higher_precision(hardware: str) -> None:
    default, high, highest = (seconds(dot(p), SQUARE, SQUARE, hardware=hardware) for p in (None, "high", "highest"))
    assert default <= high <= highest


def test_the_utilisation_is_of_the_rate_that_was_asked_for() -> None:
    step = planned(dot("highest"), SQUARE, SQUARE).step_time
    assert step.peak_dtype == "float32_highest" and step.mfu["upper"] == pytest.approx(1.0)


@pytest.mark.parametrize("hardware", ["tpu_v5e", "tpu_v5e@compiler", "h100@compiler"])
def test_verify_counts_the_passes_itself(hardware: str) -> None:
    asked: dict[str, Any] = {"mesh": {"x": 2}, "hardware": hardware, "memory_limit": "none"}
    small = f32(256, 512), f32(512, 256)
    plan = autoshard.plan(dot("highest"), *small, **asked)
    assert plan.verify(dot("highest"), *small, **asked).ok


def test_verify_tells_a_precision_that_is_not_that_of_the_program() -> None:
    asked: dict[str, Any] = {"mesh": {"x": 2}, "hardware": "tpu_v5e", "memory_limit": "none"}
    small = f32(256, 512), f32(512, 256)
    plan = autoshard.plan(dot(None), *small, **asked)
    assert not plan.verify(dot("highest"), *small, **asked).ok


def test_matmuls_that_differ_in_their_precision_alone_have_a_price_each() -> None:
    def both(x: Any, w: Any) -> Any:
        return dot("highest")(dot(None)(x, w), w)

    once = seconds(dot(None), SQUARE, SQUARE)
    assert seconds(both, SQUARE, SQUARE) == pytest.approx(7 * once, rel=1e-3)
