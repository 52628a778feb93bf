"""The Python API: what goes in, what a plan says, and how wrong arguments are answered."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plan_cases import Pin, f32, machine, mlp

from autoshard import Mesh, plan
from autoshard.api.plans import Plan
from autoshard.api.verbs import plan_traced
from autoshard.costmodels import load_profile
from autoshard.deadline import clock
from autoshard.errors import InputError, OutOfTimeError
from autoshard.frontends.jax.function import trace
from autoshard.models import build
from autoshard.sharding.steps import COLLECTIVES

AXES = {"x": 2, "y": 4}
MLP = (f32(64, 128), f32(128, 64), f32(32, 64))
PINS = [Pin("w1", '[{}, {"y"}]'), Pin("w2", '[{"y"}, {}]'), Pin("x", '[{"x"}, {}]'), Pin("out", "[{}, {}]")]


@pytest.fixture(scope="module")
def megatron() -> Plan:
    return plan(mlp, *MLP, mesh=AXES, hardware="tpu_v5e", constraints=PINS)


def test_a_plan_says_how_sure_it_is(megatron: Plan) -> None:
    assert megatron.status == "optimal"
    assert 0 < megatron.bound_s <= megatron.objective_s
    assert megatron.gap == pytest.approx((megatron.objective_s - megatron.bound_s) / megatron.objective_s)
    assert megatron.gap < 1e-3


def test_the_objective_is_the_cost_of_its_parts(megatron: Plan) -> None:
    cost = megatron.cost
    assert cost.step_s == cost.compute_s + cost.communication_s + cost.local_s
    assert megatron.objective_s == pytest.approx(cost.step_s + megatron.memory_price_s)


def test_collectives_are_a_table_with_a_row_for_each(megatron: Plan) -> None:
    table = megatron.collectives
    assert list(table.columns) == ["where", "kind", "axes", "bytes", "seconds", "times", "total_s", "value", "source"]
    assert len(table) > 0 and set(table["kind"]) <= {str(k) for k in COLLECTIVES}
    assert table["total_s"].sum() == pytest.approx(megatron.cost.communication_s)


def test_shardings_are_listed_by_name(megatron: Plan) -> None:
    assert {p.pattern: megatron[p.pattern] for p in PINS} == {p.pattern: str(p.sharding) for p in PINS}
    assert set(megatron.program.input_names) <= set(megatron.shardings)


def test_an_unknown_name_gets_near_ones(megatron: Plan) -> None:
    with pytest.raises(InputError, match=r"the plan has no value 'w3'; did you mean (w1, w2|w2, w1)\?"):
        megatron["w3"]
    with pytest.raises(InputError, match=r"the plan has no value 'zzzzzz/zz'$"):
        megatron["zzzzzz/zz"]


def test_shardings_of_jax_follow_the_plan(megatron: Plan) -> None:
    w1, w2, x = megatron.in_shardings
    assert [tuple(s.spec) for s in (w1, w2, x)] == [(None, "y"), ("y",), ("x",)] or [
        s.shard_shape(t.shape) for s, t in zip((w1, w2, x), MLP, strict=True)
    ] == [(64, 32), (32, 64), (16, 64)]
    assert megatron.out_shardings.is_fully_replicated


def test_a_plan_runs_and_gives_the_right_numbers(megatron: Plan) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s.shape).astype(np.float32) for s in MLP]
    placed = jax.device_put(tuple(arrays), megatron.in_shardings)
    np.testing.assert_allclose(np.asarray(megatron.jit()(*placed)), np.asarray(mlp(*arrays)), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("option", [{"static_argnums": (2,)}, {"static_argnames": "x"}, {"donate_argnames": "w1"}])
def test_jit_takes_nothing_that_the_plan_was_to_be_told(megatron: Plan, option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"jit of a plan got {next(iter(option))}: .* give it to autoshard\.plan"):
        megatron.jit(**option)


# -- arguments -----------------------------------------------------------------------------------------------------


def test_a_mesh_may_be_a_mesh_a_dict_or_a_dict_with_links() -> None:
    given: list[Any] = [AXES, Mesh.from_dict(AXES), {"x": {"size": 2}, "y": {"size": 4}}]
    plans = [plan(mlp, *MLP, mesh=mesh, hardware="tpu_v5e") for mesh in given]
    assert len({p.objective_s for p in plans}) == 1


def test_hardware_may_be_a_name_a_profile_or_a_machine() -> None:
    given: list[Any] = ["tpu_v5e", load_profile("tpu_v5e"), machine(AXES)]
    assert len({plan(mlp, *MLP, mesh=AXES, hardware=h).objective_s for h in given}) == 1


@pytest.mark.parametrize(
    ("mesh", "hardware", "message"),
    [
        ({}, "tpu_v5e", "the mesh has no axes"),
        ({"x": {"length": 2}}, "tpu_v5e", "mesh axis 'x': give size and perhaps link"),
        ({"x": 0}, "tpu_v5e", "axis 'x' has size 0"),
        ({"x": 2}, "abacus", "abacus"),
        ({"x": {"size": 2, "link": "string"}}, "tpu_v5e", "string"),
        ({"x": 2}, machine({"x": 4}), "the machine is placed for axes"),
    ],
)
def test_wrong_machines_are_refused(mesh: Any, hardware: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(mlp, *MLP, mesh=mesh, hardware=hardware)


def test_a_pattern_that_meets_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="matches no value"):
        plan(mlp, *MLP, mesh=AXES, hardware="tpu_v5e", constraints=[Pin("w9", "[{}, {}]")])


def test_without_sub_axes_axes_stay_whole() -> None:
    """Eight columns ask for parts of an axis of sixteen; an empty mapping says that none are to be made."""
    specs = (jax.ShapeDtypeStruct((16, 8), "float32"), jax.ShapeDtypeStruct((8, 8), "float32"))
    parts = plan(lambda x, w: x @ w, *specs, mesh={"y": 16}, hardware="tpu_v5e")
    whole = plan(lambda x, w: x @ w, *specs, mesh={"y": 16}, hardware="tpu_v5e", sub_axes={})
    assert len(parts.schedule.mesh.sizes) == 2
    assert len(whole.schedule.mesh.sizes) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nope": (2, 2)}, "the mesh has no axis 'nope'"),
        ({"y": 2}, "expected the parts of axes, such as"),
        ({"y": ("2", "2")}, "expected the parts of axes, such as"),
        ([2], "expected the parts of axes, such as"),
    ],
)
def test_sub_axes_that_are_none_are_refused(given: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"sub_axes: {said}"):
        plan(mlp, *MLP, mesh=AXES, hardware="tpu_v5e", sub_axes=given)


def test_sub_axes_that_do_not_multiply_to_the_axis_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be split"):
        plan(mlp, *MLP, mesh=AXES, hardware="tpu_v5e", sub_axes={"y": (3, 2)})


def test_unknown_control_flow_is_priced_as_said() -> None:
    def f(n: Any, x: Any) -> Any:
        x = jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1.0, c[1] @ c[1]), (0.0, x))[1]
        return jax.lax.cond(n > 0, jnp.sin, jnp.cos, x)

    notes = plan(f, f32(), f32(8, 8), mesh={"x": 2}, hardware="tpu_v5e").notes
    assert "a while loop whose number of trips is not known is priced as 1" in notes
    assert "every branch of a cond is priced as if it were taken" in notes


def test_a_loop_that_never_runs_is_known_to_and_verifies() -> None:
    def f(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.tanh(c[1] @ c[1])), (5, x))[1]

    asked = {"mesh": {"x": 2}, "hardware": "cpu_sim", "constraints": [Pin("tanh", '[{}, {"x"}]')]}
    never = plan(f, f32(8, 8), **asked)
    assert not any("trips" in note for note in never.notes)
    assert never.verify(f, f32(8, 8), **asked).ok


def test_statements_keep_their_words(megatron: Plan) -> None:
    assert [s["pattern"] for s in megatron.statements] == ["w1", "w2", "x", "out"]
    limited = plan(mlp, *MLP, mesh=AXES, hardware="tpu_v5e", memory_limit=10**9)
    assert limited.statements == ({"kind": "memory_limit", "bytes": 10**9, "source": ""},)


# -- time ----------------------------------------------------------------------------------------------------------


def after(text: str) -> Callable[[str], None]:
    """Told of the work that begins, it lets a long time pass when that is of some kind."""

    def hear(told: str) -> None:
        if told.startswith(text):
            clock.leave_out(-3600.0)

    return hear


def test_a_time_limit_ends_with_the_best_plan_so_far_and_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline is a start, so that there is a plan at any moment."""
    monkeypatch.setattr(clock, "not_counted_s", 0.0)
    model = build("mlp")
    traced = trace(model.step, *model.specs, donate_argnums=model.donate_argnums, argnames=model.argnames)
    found = plan_traced(
        traced, mesh={"x": 2, "y": 2, "z": 2}, hardware="tpu_v5e", time_limit=600, baselines=["data"],
        roles=model.logical_axes, progress=after("starting from"),
    )  # fmt: skip
    assert 0 <= found.bound_s <= found.objective_s
    assert found.objective_s <= (found.baselines[0].objective_s or 0) + 2 * found.rounding_s
    if found.status != "optimal":
        assert "the run was stopped by the time limit" in found.notes


@pytest.mark.parametrize(
    ("during", "told"),
    [
        ("enumerating", r"\(enumerating placements of ops: 0 of 3\); raise it, use fewer mesh axes"),
        ("pricing", r"\(pricing reshards of tensor types: 0 of 4\)"),
    ],
)
def test_a_time_limit_that_passes_while_the_network_is_built_is_an_error_that_says_how_far_it_was(
    monkeypatch: pytest.MonkeyPatch, during: str, told: str
) -> None:
    monkeypatch.setattr(clock, "not_counted_s", 0.0)
    with pytest.raises(OutOfTimeError, match=told):
        plan(mlp, *MLP, mesh=AXES, hardware="tpu_v5e", time_limit=600, progress=after(during))


def test_a_time_limit_ends_the_tracing_of_a_function_too() -> None:
    def endless(x):
        while True:
            time.sleep(0.01)

    with pytest.raises(OutOfTimeError, match="while tracing the function; raise it"):
        plan(endless, *MLP[:1], mesh=AXES, hardware="tpu_v5e", time_limit=0.05)


def test_progress_is_told_in_words() -> None:
    said: list[str] = []
    plan(mlp, *MLP, mesh=AXES, hardware="tpu_v5e", progress=said.append)
    assert said[:3] == ["tracing", "enumerating states", "pricing ops and reshards"]
    assert any(text.startswith("solving") for text in said)
