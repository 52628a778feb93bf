"""What steps of reshards carry, and what gathers hide behind, on machines as their compiler runs them."""

from math import inf
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

from autoshard.api import verbs as api
from autoshard.constraints import Pin
from autoshard.costmodels import load_profile, place_mesh
from autoshard.costs.critical import Role
from autoshard.costs.exposure import hidden_share
from autoshard.costs.travel import PLAIN, Travel, Travels
from autoshard.frontends.jax.function import trace
from autoshard.program.program import Program
from autoshard.program.schedule import PROGRAM
from autoshard.verify import check_plan

SPEC = jax.ShapeDtypeStruct
WIDE, ROWS = SPEC((64, 64), jnp.float32), SPEC((8, 64), jnp.float32)
CALIBRATED = place_mesh(load_profile("tpu_v5e@compiler"), {"x": 4})
PLAIN_MACHINE = place_mesh(load_profile("tpu_v5e"), {"x": 4})


def of(function: Any, *specs: Any, machine: Any = CALIBRATED) -> tuple[Program, Travels]:
    """A program and what moves of its values."""
    program = trace(function, *specs, name="f").program
    return program, Travels(program, machine)


def of_first_use(function: Any, *specs: Any) -> float:
    """The share of the first argument's bytes that a gather before its first use carries."""
    program, travels = of(function, *specs)
    value = program.body.args[0]
    use = next(op for op, _ in program.walk() if value in op.operands)
    return travels.of(value, use.id).share("all_gather")


def test_on_plain_machines_whole_arrays_move() -> None:
    program, travels = of(lambda w, x: x @ w, WIDE, ROWS, machine=PLAIN_MACHINE)
    assert {travels.of(v, PROGRAM) for v in program.body.args} == {PLAIN}


def test_float32_operands_of_matmuls_move_as_bfloat16() -> None:
    assert of_first_use(lambda w, x: x @ w, WIDE, ROWS) == 0.5


@pytest.mark.parametrize(("precision", "share"), [("highest", 1.0), ("high", 1.0), ("bfloat16", 0.5), (None, 0.5)])
def test_operands_of_matmuls_that_ask_for_their_precision_move_whole(precision: Any, share: float) -> None:
    assert of_first_use(lambda w, x: jnp.dot(x, w, precision=precision), WIDE, ROWS) == share


def test_so_they_do_where_the_context_asks_for_it() -> None:
    with jax.default_matmul_precision("float32"):
        assert of_first_use(lambda w, x: x @ w, WIDE, ROWS) == 1.0


def test_kernels_of_convolutions_move_as_bfloat16() -> None:
    def convolve(w: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert of_first_use(convolve, SPEC((3, 3, 8, 8), jnp.float32), SPEC((2, 8, 8, 8), jnp.float32)) == 0.5


def test_what_is_cast_is_cast_before_it_moves() -> None:
    assert of_first_use(lambda w, x: x @ w.astype(jnp.bfloat16), WIDE, SPEC((8, 64), jnp.bfloat16)) == 0.5


def test_a_table_moves_as_its_rows_are_used() -> None:
    assert of_first_use(lambda w, i: w[i].astype(jnp.bfloat16), WIDE, SPEC((8,), jnp.int32)) == 0.5


def test_what_is_used_whole_moves_whole() -> None:
    assert of_first_use(lambda w, x: x + jnp.exp(w), WIDE, WIDE) == 1


def test_one_use_of_the_whole_makes_a_shared_array_move_whole() -> None:
    program, travels = of(lambda w, x: (x @ w, jnp.exp(w)), WIDE, ROWS)
    assert travels.of(program.body.args[0], PROGRAM).share("all_gather") == 1


def test_sums_are_made_in_the_type_that_they_have() -> None:
    program, travels = of(lambda w, x: x @ w, WIDE, ROWS)
    assert travels.of(program.body.args[0], PROGRAM).share("reduce_scatter") == 1


def test_a_constant_does_not_move() -> None:
    program, travels = of(lambda x: jnp.exp(x) + jnp.zeros((64, 64)).at[0].add(x[0]), WIDE)
    (made,) = [op.results[0] for op, _ in program.walk() if op.kind == "broadcast_in_dim" and op.rule is not None][:1]
    assert {travels.of(made, PROGRAM).share(kind) for kind in ("all_gather", "slice", "mask")} == {0}


def test_all_reduces_of_gradients_are_combined_and_those_of_activations_are_not() -> None:
    program, travels = of(lambda w, x: (x @ w) @ w, WIDE, ROWS)
    first, last = (op.results[0] for op, _ in program.walk() if op.kind == "dot_general")
    assert travels.of(first, PROGRAM).latency("all_reduce") == 1
    assert travels.of(last, PROGRAM).latency("all_reduce") == 0
    assert travels.of(last, PROGRAM).latency("all_gather") == 1


@pytest.mark.parametrize("rows", [8, 8192])
def test_a_gather_hides_behind_the_matmuls_that_use_it_as_far_as_these_last(rows: int) -> None:
    # the matmul of `rows` takes 2 rows / (peak x share) seconds for each of the weight's elements of 4 bytes
    program, travels = of(lambda w, x: x @ w, WIDE, SPEC((rows, 64), jnp.float32))
    travel = travels.of(program.body.args[0], PROGRAM)
    work = CALIBRATED.profile.compiled_work
    assert work is not None
    peak = CALIBRATED.flops_per_s("float32") * work.matmul["f32"]
    assert travel.work_s_per_byte == pytest.approx(2 * rows / peak / 4)
    per_byte = CALIBRATED.alpha_beta("all_gather", CALIBRATED.whole("x"))[1]
    behind = travel.behind("all_gather", 4, per_byte)
    assert behind == pytest.approx(2 * rows / 4 / peak / 4 / (per_byte / 2))
    hidden = hidden_share(CALIBRATED, "all_gather", Role.WEIGHTS, behind)
    assert hidden == CALIBRATED.profile.overlap.all_gather * (1 if rows == 8192 else behind)
    assert (behind < 0.1) == (rows == 8)


def test_a_gather_of_what_no_matmul_reads_hides_nothing() -> None:
    """Updated parameters at the end of a step: in the schedule of small_v5e_4x8 the core waits for all of them."""
    program, travels = of(lambda w, x: (x @ w, w - 0.1), WIDE, ROWS)
    updated = next(op.results[0] for op, _ in program.walk() if op.kind == "sub")
    travel = travels.of(updated, PROGRAM)
    behind = travel.behind("all_gather", 4, CALIBRATED.alpha_beta("all_gather", CALIBRATED.whole("x"))[1])
    assert hidden_share(CALIBRATED, "all_gather", Role.GRADIENTS, behind) == 0


def attends(wq: Any, wo: Any, x: Any, keys: Any, values: Any) -> Any:
    """A token of each of 8 sequences: 2 groups of 4 heads of 64 attend to caches."""
    queries = (x @ wq).reshape(8, 2, 4, 64)
    shares = jax.nn.softmax(jnp.einsum("bkgd,bskd->bkgs", queries, keys), axis=-1)
    return jnp.einsum("bkgs,bskd->bkgd", shares, values).reshape(8, 512) @ wo


def gathering(wq: Any, wo: Any, x: Any, keys: Any, values: Any) -> Any:
    """The same with weights one larger, whole before they are used where that is stated."""
    return attends(checkpoint_name(wq + 1, "whole"), checkpoint_name(wo + 1, "whole"), x, keys, values)


SQUARE, CACHE = SPEC((512, 512), jnp.bfloat16), SPEC((8, 4096, 2, 64), jnp.bfloat16)
DECODING = (SQUARE, SQUARE, SPEC((8, 512), jnp.bfloat16), CACHE, CACHE)


def test_in_decoding_gathers_hide_behind_their_part_of_the_attention_to_caches() -> None:
    """By the byte of all weights: half of the attention for each of two weights of the same size, beside their own."""
    program, travels = of(attends, *DECODING)
    first, second, *_ = program.body.args
    scores, mixed = 8 * 8 * 4096 * 2.0, 8 * 512 * 2.0  # bytes
    work = CALIBRATED.profile.compiled_work
    assert work is not None and work.cached_memory is not None
    attention_s = (
        2 * (CACHE.size * 2 + scores + mixed) / (CALIBRATED.profile.memory.bandwidth.value * work.cached_memory)
    )
    matmul_s = 2 * 8 * SQUARE.size / (CALIBRATED.flops_per_s("bfloat16") * work.matmul["bf16"])
    for weight in (first, second):
        per_byte = travels.of(weight, PROGRAM).work_s_per_byte
        assert per_byte == pytest.approx(matmul_s / (SQUARE.size * 2) + attention_s / (2 * SQUARE.size * 2), rel=0.02)


def test_a_plan_of_decoding_that_gathers_its_weights_verifies() -> None:
    pins = [Pin("wq", '[{"x"}, {}]'), Pin("wo", '[{"x"}, {}]'), Pin("x", '[{"x"}, {}]')]
    caches = [Pin(name, '[{"x"}, {}, {}, {}]') for name in ("keys", "values")]
    stated = [*pins, *caches, Pin("@whole", "[{}, {}]")]
    plan = api.plan(gathering, *DECODING, mesh={"x": 4}, hardware="tpu_v5e@compiler", constraints=stated)
    assert [row.kind for row in plan.cost.rows if row.is_collective] == ["all_gather"] * 2
    assert check_plan(plan.to_dict()).findings == ()


def test_on_a_plain_machine_it_hides_as_much_as_the_profile_says() -> None:
    assert hidden_share(PLAIN_MACHINE, "all_gather", Role.GRADIENTS) == PLAIN_MACHINE.profile.overlap.all_gather > 0


def test_other_collectives_hide_behind_anything() -> None:
    assert Travel(work_s_per_byte=1e-12).behind("reduce_scatter", 4, 1e-9) == inf


@pytest.mark.parametrize("objective", ["serial", "overlap"])
def test_the_checker_works_out_the_same_bytes_seconds_and_shares(objective: str) -> None:
    def step(w: Any, table: Any, i: Any) -> Any:
        def loss(w: Any, table: Any) -> Any:
            x = table[i].astype(jnp.bfloat16)
            return jnp.sum(jnp.square(jax.nn.relu(x @ w.astype(jnp.bfloat16)) @ w.T.astype(jnp.bfloat16)))

        grads = jax.grad(loss, (0, 1))(w, table)
        return w - 0.1 * grads[0], table - 0.1 * grads[1]

    specs = SPEC((256, 512), jnp.float32), SPEC((1024, 256), jnp.float32), SPEC((4096,), jnp.int32)
    pins = [Pin("i", '[{"x"}]'), Pin("w", '[{}, {"x"}]'), Pin("table", '[{}, {"x"}]')]
    plan = api.plan(
        step, *specs, mesh={"x": 4}, hardware="tpu_v5e@compiler", constraints=pins, argnames=("w", "table", "i"),
        time_limit=20, objective=objective,
    )  # fmt: skip
    assert {row.kind for row in plan.cost.rows} >= {"all_gather"}
    assert check_plan(plan.to_dict()).findings == ()


def test_what_a_gather_hides_behind_may_be_a_thousand_ops_away() -> None:
    def chained(w: Any, x: Any) -> Any:
        w = checkpoint_name(w + 1.0, "gathered")
        for k in range(1000):
            w = jnp.sin(w) if k % 2 else w + 1.0
        return x @ w

    pins = [Pin("w", '[{"x"}, {}]'), Pin("@gathered", "[{}, {}]")]
    plan = api.plan(chained, WIDE, ROWS, mesh={"x": 4}, hardware="tpu_v5e@compiler", constraints=pins)
    assert [row.kind for row in plan.cost.rows if row.is_collective] == ["all_gather"]
    assert check_plan(plan.to_dict()).findings == ()
