"""Named strategies in the same program: a plan is never worse than any of them, and one that cannot be says why."""

from typing import Any

import pytest
from plan_cases import f32, machine, mlp, problem

from autoshard import plan
from autoshard.api.plans import Plan
from autoshard.api.verbs import ask, plan_traced
from autoshard.costs.price import price
from autoshard.deadline import Deadline
from autoshard.errors import InputError
from autoshard.frontends.jax.function import TracedFunction, trace
from autoshard.models import build
from autoshard.models.model import ModelProgram
from autoshard.planning import build_model
from autoshard.search.baselines import TOO_LATE, each_baseline, price_baselines
from autoshard.sharding.mesh import Mesh
from autoshard.solver.network import evaluate

NAMES = ("data", "fsdp", "tensor", "fsdp+tensor")
MESHES = ({"data": 8}, {"data": 2, "model": 4}, {"a": 2, "b": 2, "c": 2})
PROFILES = ("tpu_v5e", "tpu_v5p", "tpu_v6e", "h100")
MODELS = ("mlp", "transformer", "moe", "resnet")

_traced: dict[str, tuple[ModelProgram, TracedFunction]] = {}


def traced_model(name: str) -> tuple[ModelProgram, TracedFunction]:
    if name not in _traced:
        size = {"layers": 1, "seq": 16} if name in ("transformer", "moe") else {}
        model = build(name, batch=16, **size)
        step = trace(model.step, *model.specs, donate_argnums=model.donate_argnums, argnames=model.argnames)
        _traced[name] = model, step
    return _traced[name]


def compare(name: str, axes: dict[str, int], profile: str, **options: Any) -> Plan:
    model, step = traced_model(name)
    names = [n for n in NAMES if len(axes) > 1 or n != "fsdp+tensor"]
    return plan_traced(step, mesh=axes, hardware=profile, baselines=names, roles=model.logical_axes, **options)


def check(found: Plan) -> None:
    priced = [b for b in found.baselines if b.objective_s is not None]
    assert len(priced) >= 2
    for baseline in found.baselines:
        if baseline.objective_s is None:
            assert baseline.reason
        else:
            assert found.objective_s <= baseline.objective_s * (1 + 1e-9) + 2 * found.rounding_s, baseline.name


THIN = [
    ("mlp", 0, "tpu_v5e"), ("mlp", 1, "h100"), ("mlp", 2, "tpu_v6e"), ("transformer", 0, "tpu_v5p"),
    pytest.param("transformer", 1, "tpu_v5e", marks=pytest.mark.slow), ("moe", 0, "tpu_v6e"), ("resnet", 0, "h100"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "mesh", "profile"), THIN)
def test_a_plan_is_never_worse_than_a_baseline(model: str, mesh: int, profile: str) -> None:
    check(compare(model, MESHES[mesh], profile))


def test_baselines_that_are_far_from_the_optimum_do_not_keep_a_search_from_it() -> None:
    """A search around the best of them alone ended 2.6% above what is proved without them."""
    model = build("moe")
    found = plan(
        model.step, *model.specs, donate_argnums=model.donate_argnums, mesh=MESHES[2], hardware="cpu_sim",
        baselines=NAMES, roles=model.logical_axes,
    )  # fmt: skip
    assert found.status == "optimal"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mesh", range(3))
@pytest.mark.parametrize("model", MODELS)
def test_a_plan_is_never_worse_than_a_baseline_anywhere(model: str, mesh: int, profile: str) -> None:
    check(compare(model, MESHES[mesh], profile, time_limit=120.0))


# -- what the names mean -------------------------------------------------------------------------------------------

ROLES = {"w1": ("embed", "mlp"), "w2": ("mlp", "embed"), "x": ("batch", "embed")}
MLP = (f32(512, 2048), f32(2048, 512), f32(256, 512))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown baseline 'magic'; known are data, .*fsdp, .*tensor"):
        plan(mlp, *MLP, mesh={"d": 8}, hardware="tpu_v5e", baselines=["magic"], roles=ROLES)


def test_two_baselines_of_one_name_are_refused() -> None:
    mine = [{"name": "mine", "rules": {"batch": "d"}}, {"name": "mine", "rules": {"mlp": "d"}}]
    with pytest.raises(InputError, match="two baselines are called 'mine'"):
        plan(mlp, *MLP, mesh={"d": 8}, hardware="tpu_v5e", baselines=mine, roles=ROLES)


def test_a_baseline_that_is_asked_for_twice_has_one_row() -> None:
    made = plan(mlp, *MLP, mesh={"d": 8}, hardware="tpu_v5e", baselines=["data", "data"], roles=ROLES)
    assert len(made.baselines) == 1


def test_the_mix_needs_two_axes() -> None:
    with pytest.raises(InputError, match=r"needs .*mesh ax[ei]s larger than 1"):
        plan(mlp, *MLP, mesh={"d": 8}, hardware="tpu_v5e", baselines=["fsdp+tensor"], roles=ROLES)


def test_baselines_need_logical_axes() -> None:
    with pytest.raises(InputError, match="baselines need the logical axes of the inputs"):
        plan(mlp, *MLP, mesh={"d": 8}, hardware="tpu_v5e", baselines=["data"])


# -- what they do --------------------------------------------------------------------------------------------------


def step(state: Any, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    loss, grads = jax.value_and_grad(lambda s: jnp.square(mlp(s["w1"], s["w2"], x)).sum())(state)
    return jax.tree.map(lambda w, g: w - 0.1 * g, state, grads), loss


STATE = {f"state/{k}": v for k, v in ROLES.items() if k != "x"} | {"x": ROLES["x"]}


def train_step(names: list[str], axes: dict[str, int], **options: Any) -> Plan:
    return plan(
        step, {"w1": MLP[0], "w2": MLP[1]}, MLP[2], mesh=axes, hardware=machine(axes), baselines=names, roles=STATE,
        donate_argnums=(0,), **options,
    )  # fmt: skip


def test_logical_axes_of_no_input_are_told() -> None:
    axes = {"x": ("batch", "embed"), "xx": ("batch", "embed"), "@logits": ("batch",)}
    found = plan(lambda x: x.sum(), f32(8, 16), mesh={"data": 2}, hardware="tpu_v5e", roles=axes)
    told = [note for note in found.notes if note.startswith("logical axes")]
    assert told == ["logical axes of 'xx' are of no input; did you mean 'x'? Choices: x"]


def test_cutting_parameters_holds_fewer_bytes_than_copying_them() -> None:
    """S3.16: FSDP trades memory against gathers."""
    data, fsdp = train_step(["data", "fsdp"], {"d": 8}).baselines
    assert data.peak_bytes is not None and fsdp.peak_bytes is not None
    assert fsdp.peak_bytes < 0.8 * data.peak_bytes


def test_a_baseline_that_does_not_fit_in_memory_says_so() -> None:
    free = train_step(["data", "fsdp"], {"d": 8})
    data, fsdp = free.baselines
    assert data.peak_bytes is not None and fsdp.peak_bytes is not None
    limit = (data.peak_bytes + max(fsdp.peak_bytes, free.memory.peak_bytes)) // 2
    tight = train_step(["data", "fsdp"], {"d": 8}, memory_limit=limit)
    by_name = {b.name: b for b in tight.baselines}
    assert by_name["data"].objective_s is None and by_name["data"].reason
    assert by_name["fsdp"].objective_s is not None


def test_a_baseline_against_the_pins_says_so() -> None:
    from autoshard import Pin

    found = train_step(["data", "tensor"], {"d": 8}, constraints=[Pin("state/w1", '[{"d"}, {}]')])
    assert all(b.objective_s is None and "leave no layout for input state/w1" in b.reason for b in found.baselines)


def test_the_tensor_parallel_baseline_computes_what_it_says() -> None:
    """Op placements are pinned: gathering the weights and computing another way is not the strategy."""
    from autoshard.planning import Problem, build_model
    from autoshard.search.baselines import price_baselines

    program = trace(step, {"w1": MLP[0], "w2": MLP[1]}, MLP[2], donate_argnums=(0,)).program
    model = build_model(Problem.make(program, Mesh.from_dict({"d": 8}), machine({"d": 8})))
    (priced,) = price_baselines(model, ["tensor"], STATE)
    assert priced.assignment is not None
    schedule = model.schedule(priced.assignment)
    dots = [op for op in program.body.ops if op.kind == "dot_general"]
    assert len(dots) >= 4
    for op in dots:  # hidden dimension: 2048 is the only factor of that size
        assert op.rule is not None
        (hidden,) = [f for f, n in enumerate(op.rule.factor_sizes) if n == 2048]
        assert schedule.placements[op.id].factors[hidden] == (0,)


def test_a_baseline_is_priced_from_its_schedule_as_a_plan_is() -> None:
    """No rounding of the solver lies between the objectives of two plans that are the same."""
    program = trace(mlp, f32(64, 128), f32(128, 64), f32(32, 64), argnames=("w1", "w2", "x")).program
    model = build_model(problem(program, {"x": 2, "y": 4}))
    rules = {"name": "mine", "rules": {"batch": ["x"], "mlp": ["y"]}}
    roles = {"w1": ("embed", "mlp"), "w2": ("mlp", "embed"), "x": ("batch", "embed")}
    (mine,) = price_baselines(model, [rules], roles)
    assert mine.assignment is not None
    cost = price(program, model.schedule(mine.assignment), model.fusion, model.prices)
    assert mine.cost.objective_s == cost.step_s + model.memory_price_s(mine.assignment)
    ticks = evaluate(model.repeats.network, mine.assignment).cost
    assert mine.cost.objective_s == pytest.approx(ticks * model.encoded.tick_s, abs=model.encoded.rounding_s)


def test_when_the_time_is_over_and_there_is_a_plan_no_further_baseline_is_priced() -> None:
    model = build_model(problem(trace(mlp, *MLP).program, {"x": 2, "y": 4}))
    roles = {"w1": ("embed", "mlp"), "w2": ("mlp", "embed"), "x": ("batch", "embed")}
    first, *late = each_baseline(model, ["data", "fsdp", "tensor"], roles, until=Deadline.after(0))
    assert first.cost.objective_s is not None
    assert [(b.cost.objective_s, b.cost.reason, b.timed_out) for b in late] == [(None, TOO_LATE, True)] * 2


def test_partial_sums_of_two_gradients_are_added_before_they_are_scattered() -> None:
    """As XLA does it: a block and the way around it leave partial sums of one gradient, which need one scatter."""
    model, step = traced_model("resnet")
    built = build_model(ask(step.program, mesh={"data": 2, "model": 4}, hardware="tpu_v5e").problem)
    (found,) = price_baselines(built, ["tensor"], model.logical_axes)
    assert found.assignment is not None
    cost = price(step.program, built.schedule(found.assignment), built.fusion, built.prices)
    scattered = [row.where for row in cost.rows if row.kind == "reduce_scatter"]
    assert scattered and not [where for where in scattered if where.startswith("add_any")]
