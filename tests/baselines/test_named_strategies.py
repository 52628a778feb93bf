"""Named strategies on real programs: the collectives of their plans, and the intensities of MaxText's guide
(S3.5-S3.23).
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

from autoshard.api import verbs as api
from autoshard.api.plans import Plan
from autoshard.costmodels import intensities
from autoshard.costs.memory import simulate
from autoshard.costs.price import price
from autoshard.frontends.jax.function import TracedFunction, trace
from autoshard.models import build
from autoshard.models import layers as the_layers
from autoshard.models import transformer as the_transformer
from autoshard.planning import Problem, build_model
from autoshard.request.request import request_of
from autoshard.search.baselines import price_baselines

Collectives = dict[tuple[str, str], float]


@dataclass
class Priced:
    plan: Plan

    def bytes(self, kind: str, axes: str) -> float:
        """V of all collectives of a kind over `axes` in a step."""
        return sum(g.bytes for g in self.plan.step_time.groups if (g.kind, g.axes) == (kind, axes))

    def reduced(self, axes: str) -> float:
        """V of what is added up over `axes`: a scatter where the result may stay cut, else an all-reduce."""
        return self.bytes("all_reduce", axes) + self.bytes("reduce_scatter", axes)

    @property
    def kinds(self) -> set[tuple[str, str]]:
        """(kind, axes) of collectives of more than a scalar."""
        return {(g.kind, g.axes) for g in self.plan.step_time.groups if g.bytes > 64 * g.times}


def priced(
    traced: TracedFunction, mesh: dict[str, Any], strategy: Any, roles: Any, hardware: str = "tpu_v5p"
) -> Priced:
    logical, machine = api.placed(mesh, hardware)
    model = build_model(Problem.make(traced.program, logical, machine))
    slow = request_of(traced, mesh=mesh, hardware=hardware).between_slices
    (found,) = price_baselines(model, [strategy], roles, slow=slow)
    assert found.assignment is not None, found.cost.reason
    schedule = model.schedule(found.assignment)
    cost = price(traced.program, schedule, model.fusion, model.prices)
    memory = simulate(traced.program, schedule, model.liveness)
    return Priced(
        Plan(
            program=traced.program, schedule=schedule, machine=machine, cost=cost, memory=memory, status="feasible",
            objective_s=cost.step_s, bound_s=0.0, gap=1.0,
        )
    )  # fmt: skip


def traced(f: Callable[..., Any], **shapes: tuple[int, ...]) -> TracedFunction:
    specs = {name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in shapes.items()}
    return trace(f, *specs.values(), argnames=tuple(specs))


# -- closed forms from generated plans (S3.23) ---------------------------------------------------------

B, E, M = 4096, 1024, 8192
MLP_ROLES = {"x": ["batch", "embed"], "w": ["embed", "mlp"], "v": ["mlp", "embed"]}


def two_layers(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ w) @ v


def sum_of_outputs(w: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(two_layers(x, w, v).astype(jnp.float32))


def gradients(w: jax.Array, v: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.grad(sum_of_outputs, argnums=(0, 1))(w, v, x)


@pytest.mark.parametrize("x", [2, 4, 8])
def test_tensor_parallel_intensity_is_m_over_x(x: int) -> None:
    """S3.5 tp_forward, S3.6: the second matmul against the reduction of its result; both matmuls are twice that."""
    found = priced(traced(two_layers, x=(B, E), w=(E, M), v=(M, E)), {"tensor": x}, "tensor", MLP_ROLES)
    form = intensities.tensor_parallel(batch=B, embed=E, mlp=M, x=x)
    both_matmuls = 2 * form.flops
    assert found.plan.step_time.matmul_flop_per_device == both_matmuls
    assert found.reduced("tensor") == form.bytes
    assert both_matmuls / 2 / found.reduced("tensor") == form.ratio == M / x


def test_an_independent_batch_axis_leaves_the_tensor_parallel_ratio() -> None:
    """S3.7, S3.8: strategies compose."""
    program = traced(two_layers, x=(B, E), w=(E, M), v=(M, E))
    alone = priced(program, {"tensor": 4}, "tensor", MLP_ROLES)
    mixed = priced(program, {"data": 2, "tensor": 4}, "data+tensor", MLP_ROLES)
    flops = [p.plan.step_time.matmul_flop_per_device for p in (alone, mixed)]
    assert flops[0] == 2 * flops[1] and alone.reduced("tensor") == 2 * mixed.reduced("tensor")
    form = intensities.tensor_parallel(batch=B, embed=E, mlp=M, x=4, y=2)
    assert mixed.plan.step_time.matmul_flop_per_device == 2 * form.flops


def test_data_parallel_has_no_communication_forward_and_one_all_reduce_of_the_gradients_backward() -> None:
    """S3.14."""
    forward = priced(traced(two_layers, x=(B, E), w=(E, M), v=(M, E)), {"data": 8}, "data", MLP_ROLES)
    assert forward.kinds <= {("all_gather", "data")}  # of the result, which this program returns in one layout
    backward = priced(traced(gradients, w=(E, M), v=(M, E), x=(B, E)), {"data": 8}, "data", MLP_ROLES)
    # in the library's train step outputs are tied to the parameters; here the gradients are outputs on their own
    assert backward.reduced("data") == 2 * (2 * E * M)


@pytest.mark.parametrize("x", [2, 8])
def test_fsdp_matmul_intensity_is_the_local_batch(x: int) -> None:
    """S3.5 fsdp_matmul, S3.15: each weight is gathered before its matmul."""
    found = priced(traced(two_layers, x=(B, E), w=(E, M), v=(M, E)), {"fsdp": x}, "fsdp", MLP_ROLES)
    form = intensities.fsdp_matmul(batch=B, embed=E, mlp=M, x=x)
    gathers = [g for g in found.plan.step_time.groups if g.kind == "all_gather" and g.moves == "weights"]
    assert sum(g.bytes for g in gathers) == 2 * form.bytes
    assert found.plan.step_time.matmul_flop_per_device == 2 * form.flops
    assert gathers[0].flops_per_byte == pytest.approx(form.ratio) == B / x


def test_which_weight_axis_is_cut_does_not_change_the_intensity() -> None:
    """S3.15, S3.17: FSDP transpose."""
    program = traced(two_layers, x=(B, E), w=(E, M), v=(M, E))
    one = priced(program, {"fsdp": 8}, "fsdp", MLP_ROLES)
    other = priced(program, {"fsdp_transpose": 8}, "fsdp_transpose", MLP_ROLES)
    of_weights = [
        [g.flops_per_byte for g in p.plan.step_time.groups if g.moves == "weights"] for p in (one, other)
    ]  # fmt: skip
    assert of_weights[0] == of_weights[1] != []


# -- a transformer ------------------------------------------------------------------------------------

LAYERS, D, F, HEADS, SEQ, ROWS = 2, 256, 1024, 8, 512, 32


@cache
def transformer() -> tuple[TracedFunction, Any]:
    model = build(
        "transformer", layers=LAYERS, d_model=D, d_ff=F, heads=HEADS, kv_heads=HEADS, vocab=512, batch=ROWS, seq=SEQ,
        scan=True, param_dtype="bfloat16", compute_dtype="bfloat16",
    )  # fmt: skip
    return trace(model.step, *model.specs, donate_argnums=(0,), argnames=model.argnames), model


def step(mesh: dict[str, Any], strategy: Any) -> Priced:
    program, model = transformer()
    return priced(program, mesh, strategy, model.logical_axes)


def test_data_parallel_training_all_reduces_gradients_only() -> None:
    """S3.14, S3.5 dp_backward: 4 * local batch * P FLOP backward against two passes over 2 P bytes."""
    found = step({"data": 8}, "data")
    assert found.kinds == {("all_reduce", "data")}
    moved = [g for g in found.plan.step_time.groups if g.bytes > 1000]
    assert {g.moves for g in moved} == {"gradients"}
    _, model = transformer()
    assert sum(g.bytes for g in moved) == pytest.approx(2 * model.param_count, rel=0.01)


def test_fsdp_cuts_what_a_device_holds_of_the_state() -> None:
    """S3.16: per-device bytes of parameters fall by |x|."""
    data, fsdp = step({"data": 8}, "data"), step({"fsdp": 8}, "fsdp")

    def held(found: Priced) -> float:
        layouts, program = found.plan.schedule.definitions, found.plan.program
        shapes = [(layouts[v], program.type_of(v)) for v in program.body.args if "params" in program.values[v].name]
        return sum(
            float(jnp.prod(jnp.array(lay.local_shape(t.shape, found.plan.schedule.mesh)))) * t.bytes / t.elements
            for lay, t in shapes
        )

    assert held(data) == pytest.approx(8 * held(fsdp), rel=1e-6)
    assert {k for k, _ in fsdp.kinds} == {"all_gather", "reduce_scatter"}


def test_zero1_cuts_the_optimizer_state_alone() -> None:
    found = step({"data": 8}, "zero1").plan
    assert found["state/params/layers/w_up"] == "[{}, {}, {}]"
    assert found["state/opt/0/mu/layers/w_up"] == '[{}, {"data"}, {}]'
    assert {g.kind for g in found.step_time.groups if g.bytes > 1e4} == {"reduce_scatter", "all_gather"}


def test_context_gathers_keys_and_values_and_keeps_queries_cut() -> None:
    """S3.18; S3.5 cp_kv_gather: two arrays of batch * seq * kv_heads * head_dim, forward and backward."""
    found = step({"context": 4}, "context")
    keys_and_values = 2 * 2 * ROWS * SEQ * HEADS * (D // HEADS)
    gathered = sum(g.bytes for g in found.plan.step_time.groups if (g.kind, g.moves) == ("all_gather", "activations"))
    # once forward; backward either again or kept
    assert gathered in (LAYERS * keys_and_values, 2 * LAYERS * keys_and_values)
    scattered = sum(
        g.bytes for g in found.plan.step_time.groups if g.kind == "reduce_scatter" and g.moves == "activations"
    )
    # gradients of the keys come from float32 scores and are twice as large as those of the values
    assert scattered == LAYERS * keys_and_values * 1.5
    form = intensities.context_parallel(batch=ROWS, seq=SEQ, q_heads=HEADS, kv_heads=HEADS, head_dim=D // HEADS, x=4)
    assert form.bytes == keys_and_values


def test_the_batch_of_a_device_may_be_a_fraction_of_a_sequence() -> None:
    """S3.18: batch 4 on 8 devices with context 2."""
    model = build("transformer", layers=1, d_model=64, d_ff=128, heads=4, vocab=64, batch=4, seq=64, scan=True)
    program = trace(model.step, *model.specs, donate_argnums=(0,), argnames=model.argnames)
    found = priced(program, {"data": 4, "context": 2}, "data+context", model.logical_axes)
    assert found.plan["batch/tokens"] == '[{"data"}, {"context"}]'


def line_of(module: ModuleType, text: str) -> str:
    """``file:line`` of the one line of a module that has this text."""
    lines = inspect.getsource(module).splitlines()
    (number,) = (n for n, line in enumerate(lines, start=1) if text in line)
    return f"{module.__name__.rpartition('.')[2]}.py:{number}"


def test_sequence_parallelism_exchanges_heads_for_tokens_round_attention() -> None:
    """S3.21: all-to-alls round attention and back, S3.5 sp_all_to_all, and their gradients."""
    found = step({"sequence": 4}, "sequence")
    rows = [r for r in found.plan.cost.rows if r.kind == "all_to_all"]
    one = 2 * ROWS * SEQ * D / 4  # local bytes of queries, keys, values or context
    assert {r.bytes for r in rows} == {one}
    exchanged = {found.plan.program.ops[r.op].source.split(" ")[0] for r in rows if "operand" in r.where}
    keys_in = line_of(the_layers, '"bskgh,btkh->bkgst"')
    context_out = line_of(the_transformer, '"bsnh,nhd->bsd"')
    assert {keys_in, context_out} <= exchanged
    # four arrays forward and four gradients; the solver may exchange one again rather than keep it
    assert sum(r.times for r in rows) / LAYERS in (8, 9)
    form = intensities.sequence_parallel(batch=ROWS, seq=SEQ, heads=HEADS, head_dim=D // HEADS)
    forward = 4 * one * 4  # whole arrays
    assert form.bytes <= forward <= 2 * form.bytes  # the closed form counts two arrays: to first order


def test_sequence_times_tensor_cannot_exceed_the_heads() -> None:
    """S3.22: kv_heads 4 and sequence 8."""
    model = build("transformer", layers=1, d_model=64, d_ff=128, heads=8, kv_heads=4, vocab=64, batch=4, seq=64)
    program = trace(model.step, *model.specs, argnames=model.argnames)
    logical, machine = api.placed({"sequence": 8}, "tpu_v5p")
    built = build_model(Problem.make(program.program, logical, machine))
    (found,) = price_baselines(built, ["sequence"], model.logical_axes)
    assert found.cost.objective_s is None
    assert "cuts the 4 key/value heads in 8" in found.cost.reason


def test_experts_get_their_rows_by_all_to_all() -> None:
    model = build(
        "moe", layers=1, d_model=128, d_ff=256, heads=4, vocab=128, batch=16, seq=64, experts=8, experts_per_token=2,
        scan=True,
    )  # fmt: skip
    program = trace(model.step, *model.specs, donate_argnums=(0,), argnames=model.argnames)
    found = priced(program, {"data": 2, "expert": 4}, "data+expert", model.logical_axes)
    sources = [found.plan.program.values[r.value].name for r in found.plan.cost.rows if r.kind == "all_to_all"]
    assert len(sources) >= 2  # to the experts and back
    assert found.plan["state/params/layers/w_up"] == '[{}, {"expert"}, {}, {}]'


def test_across_slices_only_gradients_travel() -> None:
    """S3.12, S3.13: FSDP within a slice, data parallelism across."""
    found = step({"slice": {"size": 2, "link": "dcn"}, "fsdp": {"size": 4}}, "fsdp")
    moved = {g.moves for g in found.plan.step_time.groups if "slice" in g.axes and g.bytes > 1000}
    assert moved == {"gradients"}


def test_a_strategy_of_rules_equals_the_named_one() -> None:
    """S3.9: the three layers."""
    named = step({"data": 2, "tensor": 4}, "data+tensor")
    tensor = dict.fromkeys(("mlp", "heads", "kv_heads", "vocab"), "tensor")
    own = step({"data": 2, "tensor": 4}, {"name": "mine", "rules": {"batch": "data", **tensor}})
    assert own.plan.cost.step_s == pytest.approx(named.plan.cost.step_s)


def test_programs_without_the_tags_say_what_to_tag() -> None:
    logical, machine = api.placed({"sequence": 4}, "tpu_v5p")
    built = build_model(Problem.make(traced(two_layers, x=(B, E), w=(E, M), v=(M, E)).program, logical, machine))
    (found,) = price_baselines(built, ["sequence"], MLP_ROLES)
    assert "tag them with `checkpoint_name` (from jax.ad_checkpoint import checkpoint_name)" in found.cost.reason


def test_a_users_own_tags_switch_layouts() -> None:
    def attention(x: jax.Array, wq: jax.Array, wo: jax.Array) -> jax.Array:
        q = checkpoint_name(jnp.einsum("bsd,dnh->bsnh", x, wq), "query")
        k = checkpoint_name(jnp.einsum("bsd,dnh->bsnh", x, wq) + 1, "key")
        v = checkpoint_name(q * 2, "value")
        scores = jax.nn.softmax(jnp.einsum("bsnh,btnh->bnst", q, k))
        context = checkpoint_name(jnp.einsum("bnst,btnh->bsnh", scores, v), "attn_context")
        return jnp.einsum("bsnh,nhd->bsd", context, wo)

    roles = {
        "x": ["batch", "seq", "embed"], "wq": ["embed", "heads", "head_dim"], "wo": ["heads", "head_dim", "embed"],
    }  # fmt: skip
    program = traced(attention, x=(8, 1024, 256), wq=(256, 8, 32), wo=(8, 32, 256))
    found = priced(program, {"sequence": 4}, "sequence", roles)
    assert "all_to_all" in {kind for kind, _ in found.kinds}


def test_baselines_about_unknown_logical_axes_are_refused() -> None:
    from autoshard.errors import InputError

    with pytest.raises(InputError, match="no input has the logical axis 'mpl'"):
        step({"data": 8}, {"name": "mine", "rules": {"mpl": "data"}})
