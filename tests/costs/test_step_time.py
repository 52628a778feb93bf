"""Bounds, estimate, utilisation and intensities of plans, against sums by hand; what lies between matmuls (S3.4)."""

import jax
import jax.numpy as jnp
import pytest

from autoshard.api import verbs as api
from autoshard.api.plans import Plan
from autoshard.constraints import Pin
from autoshard.costmodels import load_profile
from autoshard.costs.critical import Role, matmul_order
from autoshard.frontends.jax.function import trace
from autoshard.verify import check_plan

B, E, M = 1024, 512, 2048
PEAK, MEMORY, LINK = 197e12, 8.1e11, 4.5e10  # bf16 FLOP/s, bytes/s, one way, of TPU v5e


def spec(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def row_parallel(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


@pytest.fixture(scope="module")
def reduced() -> Plan:
    """``B M_x @ M_x E -> B E``: one all-reduce over four devices of a line."""
    pins = [Pin("x", '[{}, {"x"}]'), Pin("w", '[{"x"}, {}]'), Pin("out", "[{}, {}]")]
    return api.plan(
        row_parallel, spec(B, M), spec(M, E), mesh={"x": 4}, hardware="tpu_v5e", constraints=pins, argnames=("x", "w")
    )


def test_the_profile_is_the_one_these_figures_are_of() -> None:
    profile = load_profile("tpu_v5e")
    assert profile.matmul_flops_per_s("bfloat16") == PEAK
    assert profile.memory.bandwidth.value == MEMORY
    assert profile.levels[0].link.value == LINK


def test_every_resource_is_as_busy_as_by_hand(reduced: Plan) -> None:
    busy = reduced.step_time.resources_s
    flop = 2 * B * (M / 4) * E
    assert busy["matrix unit"] == pytest.approx(flop / PEAK)
    assert busy["vector unit"] == 0
    assert busy["memory"] == pytest.approx(2 * (B * M / 4 + M / 4 * E + B * E) / MEMORY)
    # four chips of v5e in a row or a square; the profile says what it is, and an all-reduce passes twice
    ((link, seconds),) = [(k, v) for k, v in busy.items() if k.startswith("ici")] if len(busy) == 4 else [("", 0.0)]
    if link:
        assert seconds == pytest.approx(2 * (2 * B * E) * 3 / 4 / LINK)


def test_lower_is_the_busiest_resource_and_upper_the_sum(reduced: Plan) -> None:
    step = reduced.step_time
    assert step.lower_s == max(step.resources_s.values())
    assert step.upper_s == reduced.cost.step_s == pytest.approx(reduced.cost.compute_s + reduced.cost.communication_s)
    assert step.lower_s <= step.estimate_s <= step.upper_s
    assert step.resources_s[step.bound] == step.lower_s


def test_utilisation_is_flop_over_what_all_devices_could_do(reduced: Plan) -> None:
    step = reduced.step_time
    assert step.model_flop == step.hardware_flop == 2 * B * M * E
    assert step.mfu["upper"] == pytest.approx(2 * B * M * E / (PEAK * 4 * step.upper_s))
    assert step.hfu == step.mfu


def test_the_intensity_of_an_all_reduce_counts_two_passes(reduced: Plan) -> None:
    """S3.4, S3.5: 2 B M/x E FLOP over twice 2 B E bytes; with one pass it would be M / x."""
    (group,) = reduced.step_time.groups
    assert (group.kind, group.axes, group.bytes) == ("all_reduce", "x", 2 * B * E)
    assert group.flops_per_byte == (M / 4) / 2
    beta = reduced.machine.alpha_beta("all_reduce", reduced.machine.whole("x"))[1]
    assert group.machine_flops_per_byte == pytest.approx(PEAK * beta / 2)
    assert group.verdict == ("compute" if group.flops_per_byte > group.machine_flops_per_byte else "communication")


def test_repeated_work_is_hardware_flop_and_not_model_flop() -> None:
    whole = [Pin(name, "[{}, {}]") for name in ("x", "w", "out")]
    plan = api.plan(
        row_parallel, spec(8, 8), spec(8, 8), mesh={"x": 4}, hardware="tpu_v5e", constraints=whole, argnames=("x", "w")
    )
    step = plan.step_time
    assert step.model_flop == 2 * 8**3
    # tiny matmuls are repeated rather than cut and gathered
    assert step.hardware_flop == 4 * step.model_flop
    assert step.hfu["upper"] == pytest.approx(4 * step.mfu["upper"])
    assert step.groups == ()


def test_the_step_time_survives_the_file(reduced: Plan, tmp_path) -> None:
    reduced.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded.step_time == reduced.step_time
    assert loaded.to_dict() == reduced.to_dict()
    assert reduced.to_dict()["cost"]["step_time"]["lower_s"] == reduced.step_time.lower_s


def test_breakdown_by_axes_and_kind_adds_up(reduced: Plan) -> None:
    cost = reduced.cost_parts()
    assert cost["by_axes_and_kind_s"] == {"x": {"all_reduce": cost["communication_s"]}}


# -- flips ---------------------------------------------------------------------------------------------


def loss(w: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum((jax.nn.relu(x @ w) @ v).astype(jnp.float32))


def data_parallel(rows: int) -> Plan:
    pins = [
        Pin("x", '[{"d"}, {}]'), *(Pin(name, "[{}, {}]") for name in ("w", "v", "out/0", "out/1")),
    ]  # fmt: skip
    return api.plan(
        jax.grad(loss, argnums=(0, 1)), spec(E, M), spec(M, E), spec(rows, E), mesh={"d": 8}, hardware="tpu_v5e",
        constraints=pins, argnames=("w", "v", "x"), roles={"x": ["batch", "embed"]},
    )  # fmt: skip


def gradients_of(plan: Plan):
    return [g for g in plan.step_time.groups if g.moves == "gradients"]


def test_the_batch_at_which_gradients_stop_mattering_is_where_the_verdict_flips() -> None:
    small = data_parallel(2048)
    (group,) = gradients_of(small)
    assert group.verdict == "communication" and group.flip is not None
    assert (group.flip.quantity, group.flip.now, group.flip.more_is_compute) == ("batch", 2048, True)
    assert group.flip.at is not None and group.flip.at > 2048
    above = 2 ** (int(group.flip.at).bit_length())
    assert {g.verdict for g in gradients_of(data_parallel(above))} == {"compute"}
    (below,) = gradients_of(data_parallel(above // 4))
    assert below.verdict == "communication"


# -- what lies between matmuls ------------------------------------------------------------------------


def test_parameters_gradients_and_activations_are_told_apart() -> None:
    traced = trace(jax.grad(loss, argnums=(0, 1)), spec(E, M), spec(M, E), spec(B, E), argnames=("w", "v", "x"))
    order = matmul_order(traced.program)
    names = {v.name: v.id for v in traced.program.values}
    assert names["w"] not in order.before and names["w"] in order.after
    for gradient in traced.program.body.results:
        assert gradient in order.before and gradient not in order.after
    relu = next(op for op in traced.program.body.ops if op.kind == "max")
    assert relu.results[0] in order.before and relu.results[0] in order.after


def test_a_carry_of_a_loop_lies_between_the_matmuls_of_its_trips() -> None:
    def layers(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, wk: (jnp.tanh(c @ wk), None), x, w)[0]

    program = trace(layers, spec(8, 8), spec(3, 8, 8), argnames=("x", "w")).program
    order = matmul_order(program)
    (scan,) = [op for op in program.body.ops if op.kind == "scan"]
    body = scan.regions[0]
    carry, weight = body.args
    assert carry in order.before and carry in order.after
    assert weight not in order.before and weight in order.after
    assert program.body.results[0] in order.before and program.body.results[0] not in order.after


def test_only_what_is_not_waited_for_is_hidden() -> None:
    """Overlap shares of v5e: 80% of gathers of weights; activations of tensor parallelism are on the critical path."""
    pins = [Pin("w", '[{"x"}, {}]'), Pin("v", '[{"x"}, {}]'), Pin("x", '[{"x"}, {}]'), Pin("out", '[{"x"}, {}]')]
    plan = api.plan(
        lambda w, v, x: jax.nn.relu(x @ w) @ v, spec(E, M), spec(M, E), spec(65536, E), mesh={"x": 4},
        hardware="tpu_v5e", constraints=pins, argnames=("w", "v", "x"),
    )  # fmt: skip
    hidden = {(g.kind, g.moves): g.hidden for g in plan.step_time.groups}
    assert hidden == {("all_gather", Role.WEIGHTS.value): load_profile("tpu_v5e").overlap.all_gather}
    step = plan.step_time
    exposed = plan.cost.communication_s * (1 - 0.8)
    assert step.estimate_s == pytest.approx(max(step.lower_s, plan.cost.compute_s + plan.cost.local_s + exposed))


def test_the_likely_step_has_matmuls_at_the_share_that_training_runs_reach(reduced: Plan) -> None:
    step, share = reduced.step_time, load_profile("tpu_v5e").matmul_efficiency
    assert share is not None
    at_peak = step.resources_s["matrix unit"]
    assert step.likely_s == pytest.approx(step.estimate_s + at_peak * (1 / share.value - 1))
    assert step.mfu["likely"] == pytest.approx(step.mfu["estimate"] * step.estimate_s / step.likely_s)


def attention(q: jax.Array, k: jax.Array) -> jax.Array:
    return jnp.einsum("bshd,bthd->bhst", q, k)


def test_matmuls_of_attention_have_the_share_of_attention() -> None:
    dims = spec(2, 64, 4, 32)
    plan = api.plan(attention, dims, dims, mesh={"x": 2}, hardware="h100")
    profile = load_profile("h100")
    assert profile.attention_efficiency is not None
    at_peak = plan.step_time.resources_s["matrix unit"]
    slower = at_peak * (1 / profile.attention_efficiency.value - 1)
    assert plan.step_time.likely_s == pytest.approx(plan.step_time.estimate_s + slower)


def test_a_machine_without_shares_is_likely_to_take_the_estimate() -> None:
    plan = api.plan(row_parallel, spec(8, 8), spec(8, 8), mesh={"x": 4}, hardware="cpu_sim")
    assert plan.step_time.likely_s == plan.step_time.estimate_s


@pytest.mark.parametrize("hardware", ["tpu_v5e", "h100"])
@pytest.mark.parametrize(
    ("short", "long"),
    [("int8", "bfloat16"), ("int8", "float32"), ("bfloat16", "float32"), ("float8_e4m3fn", "bfloat16")],
)
def test_a_product_of_two_types_is_computed_in_the_longer_one_whichever_comes_first(
    short: str, long: str, hardware: str
) -> None:
    def f(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.dot(a, b, preferred_element_type=jnp.float32)

    for first, second in ((short, long), (long, short)):
        specs = [jax.ShapeDtypeStruct((256, 256), dtype) for dtype in (first, second)]
        plan = api.plan(f, *specs, mesh={"x": 2}, hardware=hardware)
        assert plan.step_time.peak_dtype == long
        assert check_plan(plan.to_dict()).findings == ()
