"""Plans on a machine whose profile says how fast compiled work runs: their prices, and the checker's agreement."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autoshard.api import verbs as api
from autoshard.api.plans import Plan
from autoshard.constraints import Pin
from autoshard.costmodels import load_profile
from autoshard.costmodels.compiled import FEW_QUERIES, WorkKind
from autoshard.costs.fusion import analyse
from autoshard.costs.kinds import work_kinds
from autoshard.costs.price import PlanCost, price
from autoshard.costs.pricing import StepPrices
from autoshard.costs.roofline import op_seconds
from autoshard.frontends.jax.function import trace
from autoshard.verify import check_plan

B, E, M = 1024, 512, 2048
SPEC = jax.ShapeDtypeStruct
STATED = load_profile("tpu_v5e@compiler").compiled_work
assert STATED is not None
WORK = STATED


def step(w: Any, x: Any, q: Any) -> Any:
    """A matmul with weights, one of attention, a square before and an update after them."""

    def loss(w: Any) -> Any:
        scores = jnp.einsum("bsh,bth->bst", q, q) if q.ndim == 3 else jnp.einsum("bshd,bthd->bhst", q, q)
        return jnp.sum(jnp.square(x) @ w) + jnp.sum(scores)

    return w - 0.1 * jax.grad(loss)(w)


ARGUMENTS = (SPEC((E, M), jnp.float32), SPEC((B, E), jnp.float32), SPEC((2, 64, 4, 32), jnp.bfloat16))


@pytest.fixture(scope="module")
def pair() -> tuple[Plan, Plan]:
    """The same plan on the plain and on the calibrated machine."""
    pins = [Pin("x", '[{"x"}, {}]'), Pin("w", "[{}, {}]"), Pin("out", "[{}, {}]")]
    plans = [
        api.plan(
            step, *ARGUMENTS, mesh={"x": 4}, hardware=machine, constraints=pins, argnames=("w", "x", "q"), time_limit=20
        )
        for machine in ("tpu_v5e", "tpu_v5e@compiler")
    ]
    return plans[0], plans[1]


def test_kinds_of_work_follow_from_rules_and_from_what_matmuls_depend_on() -> None:
    program = trace(lambda w, x, q: (step(w, x, q), jnp.einsum("bshd,bthd->bhst", q, q)), *ARGUMENTS, name="s").program
    found = work_kinds(program)
    kinds = {op.kind: found[op.id] for op, _ in program.walk() if op.rule is not None and op.kind != "dot_general"}
    dots = {found[op.id] for op, _ in program.walk() if op.kind == "dot_general"}
    assert dots == {WorkKind.UPDATED, WorkKind.ATTENTION}
    assert kinds["square"] is WorkKind.ELEMENTWISE
    assert kinds["sub"] is WorkKind.UPDATE


@pytest.mark.parametrize("group", [1, 4, 64])
def test_attention_of_few_queries_reads_keys_and_values_once(group: int) -> None:
    """As decoding does: what crosses memory again and again are scores, of which there are next to none."""

    def decode(q: Any, k: Any) -> Any:
        return jnp.einsum("bkgd,bskd->bkgs", q, k)

    specs = SPEC((8, 4, group, 128), jnp.bfloat16), SPEC((8, 512, 4, 128), jnp.bfloat16)
    plan = api.plan(decode, *specs, mesh={"x": 4}, hardware="tpu_v5e@compiler", effort=0.2)
    (dot,) = [op for op, _ in plan.program.walk() if op.kind == "dot_general"]
    scores = group >= FEW_QUERIES
    assert work_kinds(plan.program)[dot.id] is (WorkKind.ATTENTION if scores else WorkKind.CACHED)
    moved = sum(plan.program.type_of(v).bytes for v in (*dot.operands, *dot.results)) / 4
    once = moved / plan.machine.profile.memory.bandwidth.value / WORK.memory
    assert WORK.attention_peak is not None
    of_flop = 2 * 8 * 4 * group * 512 * 128 / 4 / plan.machine.flops_per_s("bfloat16") / WORK.attention_peak
    assert plan.cost.op_seconds[dot.id] == pytest.approx(once * WORK.attention + of_flop if scores else once)
    assert check_plan(plan.to_dict()).findings == ()


@pytest.mark.parametrize(("positions", "share"), [(512, WORK.matmul_memory), (65536, WORK.cached_memory)])
def test_a_cache_that_exceeds_the_chip_is_read_at_a_share_of_its_own(positions: int, share: float) -> None:
    specs = SPEC((8, 4, 4, 128), jnp.bfloat16), SPEC((8, positions, 4, 128), jnp.bfloat16)
    plan = api.plan(
        lambda q, k: jnp.einsum("bkgd,bskd->bkgs", q, k), *specs, mesh={"x": 4}, hardware="tpu_v5e@compiler", effort=0.2
    )
    (dot,) = [op for op, _ in plan.program.walk() if op.kind == "dot_general"]
    moved = sum(plan.program.type_of(v).bytes for v in (*dot.operands, *dot.results)) / 4
    assert plan.cost.op_seconds[dot.id] == pytest.approx(moved / plan.machine.profile.memory.bandwidth.value / share)
    assert check_plan(plan.to_dict()).findings == ()


def calibrated_price(plan: Plan) -> PlanCost:
    """The price of a plan's schedule on the calibrated machine."""
    machine = api.placed({"x": 4}, "tpu_v5e@compiler")[1]
    prices = StepPrices(machine, plan.schedule.mesh)
    return price(plan.program, plan.schedule, analyse(plan.program), prices)


def test_ops_of_one_plan_differ_by_the_shares_of_their_kind(pair: tuple[Plan, Plan]) -> None:
    plain, calibrated = pair[0].cost.op_seconds, calibrated_price(pair[0]).op_seconds
    ratios = {op.kind: calibrated[op.id] / s for op, _ in pair[0].program.walk() if (s := plain.get(op.id, 0)) > 0}
    assert ratios["sub"] == pytest.approx(WORK.update / WORK.memory)
    assert plain != calibrated


def test_the_checker_works_out_the_same_prices(pair: tuple[Plan, Plan]) -> None:
    assert check_plan(pair[1].to_dict()).findings == ()
    told = pair[1].to_dict()
    told["hardware"]["machine"]["profile"]["compiled_work"]["update"] = 2 * WORK.update
    assert any("cost.compute_s is" in str(finding) for finding in check_plan(told).findings)


def test_prices_with_shares_need_no_likely_step_beside_them(pair: tuple[Plan, Plan]) -> None:
    plain, calibrated = (plan.step_time for plan in pair)
    assert plain.likely_s > plain.estimate_s
    assert calibrated.likely_s == calibrated.estimate_s
    assert calibrated.lower_s <= calibrated.estimate_s <= calibrated.upper_s


def test_an_update_is_fused_only_where_no_partial_sum_is_moved_first_and_an_operand_stays_on_the_chip(
    pair: tuple[Plan, Plan],
) -> None:
    machine, mesh = pair[1].machine, pair[1].schedule.mesh
    large = SPEC((8192, 8192), jnp.float32)  # so that its FLOP take longer than its bytes
    program = trace(step, large, large, ARGUMENTS[2], name="s").program
    kinds = work_kinds(program)
    (dot,) = [op for op, _ in program.walk() if kinds.get(op.id) is WorkKind.UPDATED]
    rule = dot.rule
    assert rule is not None
    (summed,) = rule.reduction
    kept = next(f for f in range(len(rule.factor_sizes)) if f != summed)
    shards = np.ones((4, len(rule.factor_sizes)), np.int64)
    shards[0, summed] = shards[1, kept] = 4  # of 8192 x 2048 elements, 64 MiB, nothing stays on a v5e
    shards[2, summed] = shards[3, kept] = 8
    spilled, apart, alone, fused = op_seconds(dot, program, shards, analyse(program), StepPrices(machine, mesh))
    assert apart == spilled
    assert 2 * alone / spilled == pytest.approx(WORK.spilled["f32"] / WORK.matmul["f32"])
    assert 2 * fused / spilled == pytest.approx(WORK.spilled["f32"] / WORK.updated["f32"])


@pytest.mark.parametrize("rows", [2048, 8192])
def test_the_checker_prices_matmuls_alike_whose_operands_stay_on_the_chip_or_do_not(rows: int) -> None:
    """Of 2048 rows one operand has 16 MiB; of 8192 both have 64 MiB, and a v5e keeps neither."""
    specs = SPEC((rows, 2048), jnp.float32), SPEC((2048, 8192), jnp.float32)
    plan = api.plan(lambda x, w: x @ w, *specs, mesh={"x": 1}, hardware="tpu_v5e@compiler")
    shares = WORK.spilled if rows == 8192 else WORK.matmul
    peak = plan.machine.flops_per_s("float32")
    assert plan.cost.compute_s == pytest.approx(2 * rows * 2048 * 8192 / peak / shares["f32"])
    assert not check_plan(plan.to_dict()).findings


def test_the_checker_prices_what_float32_matmuls_write_alike() -> None:
    def training(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)

    specs = SPEC((2048, 1024), jnp.float32), SPEC((4096, 2048), jnp.float32)
    plan = api.plan(training, *specs, mesh={"x": 4}, hardware="h100@compiler", effort=0.2)
    compiled = plan.machine.profile.compiled_work
    assert compiled is not None and compiled.matmul_written["f32"] > 0
    assert check_plan(plan.to_dict()).findings == ()


def test_the_checker_prices_attention_of_one_sequence_and_the_starts_of_kernels_alike() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("shd,thd->hst", q, k)
        return jnp.sum(jnp.einsum("hst,thd->shd", jax.nn.softmax(scores, axis=-1), v))

    spec = SPEC((128, 4, 64), jnp.bfloat16)
    plan = api.plan(
        jax.grad(attention, argnums=(0, 1, 2)), spec, spec, spec, mesh={"x": 4}, hardware="h100@compiler", effort=0.2
    )
    kinds = work_kinds(plan.program)
    dots = [op.id for op, _ in plan.program.walk() if op.kind == "dot_general"]
    assert {kinds[op] for op in dots} == {WorkKind.ATTENTION}
    work = plan.machine.profile.compiled_work
    assert work is not None and min(plan.cost.op_seconds[op] for op in dots) > work.matmul_start_s
    assert check_plan(plan.to_dict()).findings == ()
