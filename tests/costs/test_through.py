"""Matmuls that memory bounds read what the ops fused into their operands are made of."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import ShapeDtypeStruct, lax
from plan_cases import f32, program_of

import autoshard
from autoshard.costmodels import load_profile
from autoshard.costs.fusion import analyse
from autoshard.costs.through import read_through

ROWS, SIZE = 16, 4096
X = ShapeDtypeStruct((ROWS, SIZE), jnp.bfloat16)
SCALE = ShapeDtypeStruct((SIZE,), jnp.bfloat16)


def weight(dtype: Any, *more: int) -> Any:
    return ShapeDtypeStruct((*more, SIZE, SIZE), dtype)


def matmul_s(function: Any, *specs: Any, hardware: str = "tpu_v5e@compiler") -> float:
    """Seconds of the program's matmuls on one device."""
    plan = autoshard.plan(function, *specs, mesh={"x": 1}, hardware=hardware, memory_limit="none")
    kinds = {op.id: op.kind for op, _ in plan.program.walk()}
    return sum(s for op, s in plan.cost.op_seconds.items() if kinds[op] in ("dot_general", "conv_general_dilated"))


def reading(size_bytes: float, share: str = "matmul_memory") -> float:
    profile = load_profile("tpu_v5e@compiler")
    assert profile.compiled_work is not None
    return size_bytes / profile.memory.bandwidth.value / float(getattr(profile.compiled_work, share))


@pytest.mark.parametrize(("dtype", "bytes_"), [(jnp.int8, 1), (jnp.bfloat16, 2), (jnp.float32, 4)])
def test_a_weight_is_read_in_the_type_in_which_it_lies(dtype: Any, bytes_: int) -> None:
    taken = matmul_s(lambda x, w: x @ w.astype(jnp.bfloat16), X, weight(dtype))
    assert taken == pytest.approx(reading(bytes_ * SIZE * SIZE), rel=0.02)


def test_scales_of_a_quantised_weight_are_read_once_and_count_little() -> None:
    taken = matmul_s(lambda x, w, s: x @ (w.astype(jnp.bfloat16) * s), X, weight(jnp.int8), SCALE)
    assert taken == pytest.approx(reading(SIZE * SIZE), rel=0.02)


def test_of_stacked_weights_the_part_is_read_that_is_taken() -> None:
    for taken in (lambda x, w: x @ w[1], lambda x, w: x @ lax.dynamic_index_in_dim(w, x.argmax(), keepdims=False)):
        found = matmul_s(taken, X, weight(jnp.bfloat16, 3))
        assert found == pytest.approx(reading(2 * SIZE * SIZE, "sliced_memory"), rel=0.02)


def test_a_sum_of_two_weights_is_a_read_of_both() -> None:
    taken = matmul_s(lambda x, w, v: x @ (w + v), X, weight(jnp.bfloat16), weight(jnp.bfloat16))
    assert taken == pytest.approx(reading(2 * 2 * SIZE * SIZE), rel=0.02)


def test_a_weight_that_is_used_twice_in_a_chain_is_read_once() -> None:
    taken = matmul_s(lambda x, w: x @ (w * jax.nn.sigmoid(w)), X, weight(jnp.bfloat16))
    assert taken == pytest.approx(reading(2 * SIZE * SIZE), rel=0.02)


def test_numbers_that_are_made_on_the_chip_are_not_read() -> None:
    program = program_of(lambda x: x @ jnp.eye(64, dtype=jnp.float32), f32(8, 64))
    read = read_through(program, analyse(program))
    matmul = next(op for op, _ in program.walk() if op.kind == "dot_general")
    assert read.get(matmul.operands[1], 0.0) == 0.0


def test_a_matmul_of_many_rows_takes_its_flop_whatever_its_weights_are_made_of() -> None:
    many = ShapeDtypeStruct((8192, SIZE), jnp.bfloat16)
    cast = matmul_s(lambda x, w: x @ w.astype(jnp.bfloat16), many, weight(jnp.int8))
    assert cast == matmul_s(lambda x, w: x @ w, many, weight(jnp.bfloat16))


def test_prices_that_know_no_kinds_of_work_count_conversions_by_themselves() -> None:
    cast = matmul_s(lambda x, w: x @ w.astype(jnp.bfloat16), X, weight(jnp.float32), hardware="tpu_v5e")
    assert cast < SIZE * SIZE * 2 / load_profile("tpu_v5e").memory.bandwidth.value


OPERANDS = (
    lambda w, s: w.astype(jnp.bfloat16),
    lambda w, s: w.astype(jnp.bfloat16) * s,
    lambda w, s: w.T.astype(jnp.bfloat16),
    lambda w, s: (w + 1).astype(jnp.bfloat16) * s,
    lambda w, s: jnp.where(w > 0, w, 0).astype(jnp.bfloat16),
    lambda w, s: jnp.concatenate([w[8:], w[:8]]).astype(jnp.bfloat16),
    lambda w, s: w.reshape(4, 4, 16).reshape(16, 16).astype(jnp.bfloat16),
)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(OPERANDS), st.sampled_from([jnp.int8, jnp.float32]), st.sampled_from(["tpu_v5e", "h100"]))
def test_verify_finds_what_is_read_itself(made: Any, dtype: Any, chip: str) -> None:
    def step(x: Any, w: Any, s: Any) -> Any:
        return jnp.tanh(x) @ made(w, s)

    asked: dict[str, Any] = {"mesh": {"x": 2}, "hardware": f"{chip}@compiler", "memory_limit": "none"}
    values = jnp.ones((4, 16), jnp.bfloat16), jnp.ones((16, 16), dtype), jnp.ones((16,), jnp.bfloat16)
    assert autoshard.plan(step, *values, **asked).verify(step, *values, **asked).ok


def test_matmuls_that_are_alike_but_for_what_they_read_have_a_price_each() -> None:
    def step(x: Any, w: Any, v: Any) -> Any:
        return (x @ w.astype(jnp.bfloat16)) @ v.astype(jnp.bfloat16)

    taken = matmul_s(step, X, weight(jnp.int8), weight(jnp.float32))
    assert taken == pytest.approx(reading(5 * SIZE * SIZE), rel=0.02)
