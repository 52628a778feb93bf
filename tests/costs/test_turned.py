"""What a GPU turns around in memory, rows and caches: its bytes, where it counts, and the checker's agreement."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autoshard.api import verbs as api
from autoshard.api.plans import Plan
from autoshard.calibrate.programs import PROGRAMS
from autoshard.constraints import Pin
from autoshard.costs.turned import TILED_FROM, read_again_bytes
from autoshard.costs.work import local_sizes
from autoshard.frontends.jax.function import trace
from autoshard.models import build
from autoshard.program.program import Op, Program
from autoshard.verify import check_plan

SPEC = jax.ShapeDtypeStruct
SECTOR = 32


def transposed(shape: tuple[int, ...], order: tuple[int, ...], dtype: Any = jnp.float32) -> tuple[Program, Op]:
    program = trace(lambda x: jnp.transpose(x, order) * 2.0, SPEC(shape, dtype), name="turn").program
    return program, next(op for op, _ in program.walk() if op.kind == "transpose")


@pytest.mark.parametrize(
    ("shape", "order", "dtype", "reads"),
    [
        ((16, 64, 4), (0, 2, 1), jnp.float32, 4),
        ((16, 4, 64), (0, 2, 1), jnp.float32, 4),  # as far apart on the way back
        ((16, 64, 7), (0, 2, 1), jnp.bfloat16, 7),
        ((16, 64, 7), (0, 2, 1), jnp.float64, 4),  # a sector has four of them
        ((16, 64, TILED_FROM), (0, 2, 1), jnp.float32, 1),
        ((16, 64, 4), (1, 0, 2), jnp.float32, 1),
        ((16, 64, 4, 1), (0, 1, 3, 2), jnp.float32, 1),
    ],
    ids=["four in a row", "rows of four after it", "seven", "doubles", "tiles", "rows stay rows", "a dimension of one"],
)
def test_a_transpose_reads_as_often_as_its_shorter_row_is_long(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: Any, reads: int
) -> None:
    with jax.enable_x64(True):
        program, op = transposed(shape, order, dtype)
    assert op.rule is not None
    sizes = local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64))
    own = program.type_of(op.operands[0]).bytes
    assert read_again_bytes(op, program, sizes, SECTOR).tolist() == [(reads - 1) * own]


def test_rows_are_those_of_one_device() -> None:
    program, op = transposed((16, 64, 4), (0, 2, 1))
    assert op.rule is not None
    short = op.rule.operands[0][2][0]
    shards = np.ones((3, len(op.rule.factor_sizes)), np.int64)
    shards[:, short] = (1, 2, 4)  # rows of four, of two, and of one, which is no row
    own = program.type_of(op.operands[0]).bytes
    again = read_again_bytes(op, program, local_sizes(op.rule, shards), SECTOR)
    assert again.tolist() == [3 * own, own / 2, 0]


@pytest.mark.parametrize(
    ("shape", "dtype"), [((0, 4), jnp.float32), ((4, 0, 3), jnp.float32), ((6, 4), jax.dtypes.float0)]
)
def test_what_has_no_bytes_is_turned_in_no_time(shape: tuple[int, ...], dtype: Any) -> None:
    """Arrays of no elements, and the tangents of whole numbers."""
    asked: Any = {"mesh": {"x": 2}, "hardware": "h100@compiler", "time_limit": 20}
    plan = api.plan(jnp.transpose, SPEC(shape, dtype), **asked)
    assert plan.cost.compute_s == 0 and check_plan(json.loads(json.dumps(plan.to_dict()))).ok


def test_one_element_is_turned_without_reading_again() -> None:
    """Its rule has no factors."""
    plan = api.plan(jnp.transpose, SPEC((1, 1), jnp.float32), mesh={"x": 2}, hardware="h100@compiler", time_limit=20)
    assert check_plan(json.loads(json.dumps(plan.to_dict()))).ok


def planned(hardware: str) -> Plan:
    pins = [Pin("x", '[{"x"}, {}, {}]'), Pin("out", '[{"x"}, {}, {}]')]
    return api.plan(
        lambda x: jnp.transpose(x, (0, 2, 1)) * 2.0, SPEC((1024, 512, 4), jnp.float32), mesh={"x": 2},
        hardware=hardware, constraints=pins, argnames=("x",), time_limit=20,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hardware", "counts"), [("h100@compiler", True), ("h100", False), ("tpu_v5e@compiler", False)]
)
def test_it_counts_on_machines_whose_profile_says_so(hardware: str, counts: bool) -> None:
    plan = planned(hardware)
    (turn,) = (op for op, _ in plan.program.walk() if op.kind == "transpose")
    again_s = 3 * 1024 * 512 * 4 * 4 / 2 / plan.machine.profile.memory.bandwidth.value
    assert (plan.cost.op_seconds[turn.id] >= again_s) is counts


def test_the_checker_works_it_out_itself() -> None:
    plan = planned("h100@compiler")
    assert check_plan(plan.to_dict()).ok
    told = json.loads(json.dumps(plan.to_dict()))
    told["hardware"]["machine"]["profile"]["compiled_work"]["sector_bytes"] = 0
    assert not check_plan(told).ok


@pytest.mark.parametrize(("kv_heads", "turns"), [(8, False), (4, True), (1, False)], ids=["one", "two", "eight"])
def test_scores_of_heads_that_share_keys_turn_where_they_are_two_to_seven(kv_heads: int, turns: bool) -> None:
    model = build("transformer", layers=1, d_model=128, d_ff=128, heads=8, kv_heads=kv_heads, vocab=64, seq=64, batch=2)
    program = trace(model.step, *model.specs, name="step").program
    again = 0.0
    for op, _ in program.walk():
        if op.kind == "transpose" and op.rule is not None:
            sizes = local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64))
            again += float(read_again_bytes(op, program, sizes, SECTOR)[0])
    assert (again > 0) is turns


def decoding(kv_heads: int, mesh: dict[str, int], heads_by: str, hardware: str = "h100@compiler") -> Plan:
    """A token's attention to a cache that is updated in place, its heads cut over an axis."""

    def step(cache: Any, q: Any, new: Any, at: Any) -> Any:
        cache = jax.lax.dynamic_update_slice(cache, new, (0, at, 0, 0))
        return cache, jnp.einsum("bkgd,bskd->bkgs", q, cache)

    specs = (
        SPEC((8, 4096, kv_heads, 128), jnp.bfloat16), SPEC((8, kv_heads, 2, 128), jnp.bfloat16),
        SPEC((8, 1, kv_heads, 128), jnp.bfloat16), SPEC((), jnp.int32),
    )  # fmt: skip
    pins = [Pin("cache", f"[{{}}, {{}}, {{{heads_by}}}, {{}}]"), Pin("q", f"[{{}}, {{{heads_by}}}, {{}}, {{}}]")]
    return api.plan(
        step, *specs, mesh=mesh, hardware=hardware, constraints=pins, argnames=("cache", "q", "new", "at"),
        donate_argnums=(0,), time_limit=20,
    )  # fmt: skip


def matmul_s(plan: Plan) -> float:
    return sum(plan.cost.op_seconds[op.id] for op, _ in plan.program.walk() if op.kind == "dot_general")


@pytest.mark.parametrize(("kv_heads", "turns"), [(8, True), (4, False)], ids=["two heads", "one"])
def test_a_cache_with_several_heads_on_a_device_is_turned_three_times(kv_heads: int, turns: bool) -> None:
    plan = decoding(kv_heads, {"x": 4}, '"x"')
    work, rate = plan.machine.profile.compiled_work, plan.machine.profile.memory.bandwidth.value
    assert work is not None and work.matmul_memory is not None
    pass_s = 8 * 4096 * kv_heads * 128 * 2 / 4 / rate
    once_s = pass_s / work.matmul_memory
    assert matmul_s(plan) > (once_s + 6 * pass_s / work.memory if turns else once_s)
    assert matmul_s(plan) < 1.05 * (once_s + (6 * pass_s / work.memory if turns else 0)) + 2 * work.matmul_start_s
    assert check_plan(plan.to_dict()).ok


def test_caches_stay_as_they_are_on_machines_whose_profile_does_not_say_so() -> None:
    plan = decoding(8, {"x": 4}, '"x"', "tpu_v5e@compiler")
    work, rate = plan.machine.profile.compiled_work, plan.machine.profile.memory.bandwidth.value
    assert work is not None and work.matmul_memory is not None
    assert matmul_s(plan) < 1.05 * 8 * 4096 * 8 * 128 * 2 / 4 / rate / work.matmul_memory


def test_beside_a_cache_that_is_updated_one_of_its_shape_is_turned_once() -> None:
    def step(q: Any, kept: Any, cache: Any, new: Any, at: Any) -> Any:
        cache = jax.lax.dynamic_update_slice(cache, new, (0, at, 0, 0))
        return jnp.einsum("bhd,bshd->bhs", q, kept), jnp.einsum("bhd,bshd->bhs", q, cache), cache

    held = SPEC((8, 512, 8, 64), jnp.bfloat16)
    specs = SPEC((8, 8, 64), jnp.bfloat16), held, held, SPEC((8, 1, 8, 64), jnp.bfloat16), SPEC((), jnp.int32)
    plan = api.plan(step, *specs, mesh={"x": 1}, hardware="h100@compiler")
    kept_s, cache_s = (plan.cost.op_seconds[op.id] for op, _ in plan.program.walk() if op.kind == "dot_general")
    work, rate = plan.machine.profile.compiled_work, plan.machine.profile.memory.bandwidth.value
    assert work is not None
    assert cache_s - kept_s == pytest.approx((6 - 2) * 8 * 512 * 8 * 64 * 2 / rate / work.memory)


def test_the_attention_of_a_token_that_ran_is_priced_as_it_ran() -> None:
    step, specs, donated = PROGRAMS["few_queries"]()
    plan = api.plan(step, *specs, mesh={"x": 1}, hardware="h100@compiler", donate_argnums=donated, time_limit=20)
    assert plan.cost.step_s == pytest.approx(1.530e-3, rel=0.05)  # experiments/gpu/kernels.py
