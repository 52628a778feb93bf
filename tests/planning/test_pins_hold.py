"""Pins are hard: they hold in the plan, or there is no plan and the message says why."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from plan_cases import Pin, f32, mlp

from autoshard import SameSharding, plan
from autoshard.api.plans import Plan
from autoshard.errors import InfeasibleError, ShardingError
from autoshard.program.program import Program
from autoshard.verify.plan.checker import check_plan

AXES = {"x": 2, "y": 4}


def planned(f: Any, *specs: Any, pins: dict[str, str], axes: dict[str, int] | None = None, **options: Any) -> Plan:
    constraints = [Pin(pattern, sharding) for pattern, sharding in pins.items()]
    return plan(f, *specs, mesh=axes or AXES, hardware="tpu_v5e", constraints=constraints, **options)


MLP = (f32(64, 128), f32(128, 64), f32(32, 64))


@pytest.mark.parametrize(
    "pins",
    [
        {"w1": '[{}, {"y"}]'},
        {"x": '[{"x"}, {}]', "out": '[{"x"}, {}]'},
        {"w1": '[{"x", "y"}, {}]'},
        {"w2": "[{}, {}]", "x": "[{}, {}]", "out": "[{}, {}]"},
        {"out": '[{"y"}, {"x"}]'},
    ],
    ids=str,
)
def test_pins_on_inputs_and_outputs_are_in_the_plan(pins: dict[str, str]) -> None:
    found = planned(mlp, *MLP, pins=pins)
    assert {name: found[name] for name in pins} == pins


def test_an_axis_order_that_is_not_the_mesh_s_is_kept() -> None:
    found = planned(mlp, *MLP, pins={"w1": '[{"y", "x"}, {}]'})
    assert found["w1"] == '[{"y", "x"}, {}]'


def test_sub_axes_can_be_pinned() -> None:
    pins = {"w1": '[{"y":(1)2}, {"y":(2)2}]'}
    found = planned(mlp, *MLP, pins=pins, sub_axes={"y": (2, 2)})
    assert found["w1"] == pins["w1"]


@pytest.mark.parametrize("name", ["w1", "x", "out"])
@pytest.mark.parametrize("sharding", ['[{"y":(1)2}, {?}]', '[{?}, {"y":(2)2}]', '[{"x", "y":(1)2}, {?}]'])
def test_a_part_of_an_axis_can_be_pinned_where_another_dimension_is_open(name: str, sharding: str) -> None:
    found = planned(mlp, *MLP, pins={name: sharding})
    cut, opened = (0, 1) if sharding.endswith("{?}]") else (1, 0)
    dims = found[name][1:-1].split("}, {")
    assert dims[cut].strip("{}") == sharding[1:-1].split("}, {")[cut].strip("{}")
    part = sharding[sharding.index('"y"') :][:8]
    assert part not in dims[opened] and '"y",' not in dims[opened] and not dims[opened].endswith('"y"')
    assert check_plan(found.to_dict()).ok


def test_a_part_of_an_axis_holds_for_all_of_a_group() -> None:
    pins = [Pin("w1", '[{"y":(1)2}, {?}]'), SameSharding(["w1", "x"])]
    found = plan(mlp, *MLP[:2], f32(64, 64), mesh=AXES, hardware="tpu_v5e", constraints=pins[:1])
    assert found["w1"].startswith('[{"y":(1)2}')
    tied = plan(
        lambda x, w1: jnp.tanh(x) @ w1.T, f32(64, 128), f32(64, 128), mesh=AXES, hardware="tpu_v5e", constraints=pins,
        argnames=["x", "w1"],
    )  # fmt: skip
    assert tied["w1"] == tied["x"] and tied["x"].startswith('[{"y":(1)2}')


@pytest.mark.parametrize("order", [1, -1])
def test_two_pins_that_cut_different_dimensions_by_one_axis_contradict_each_other(order: int) -> None:
    """Each leaves the other's dimension open; no sharding has an axis twice."""
    for first, second in (
        ('[{"x"}, {?}]', '[{?}, {"x"}]'),
        ('[{"y", "x"}, {?}]', '[{?}, {"x", "y"}]'),
        ('[{"y":(1)2, ?}, {?}]', '[{?}, {"y"}]'),
    ):
        pins = [Pin("w1", first, source="a:1"), Pin("w1", second, source="a:2")][::order]
        with pytest.raises(InfeasibleError, match="in one and dimension") as caught:
            plan(mlp, *MLP, mesh=AXES, hardware="tpu_v5e", constraints=pins)
        assert sorted(line[:3] for line in caught.value.conflict) == ["a:1", "a:2"]


def test_an_open_dimension_may_gain_axes_behind_the_stated_ones() -> None:
    closed = planned(mlp, *MLP, pins={"w1": '[{"x"}, {}]'})
    opened = planned(mlp, *MLP, pins={"w1": '[{"x", ?}, {?}]'})
    assert closed["w1"] == '[{"x"}, {}]'
    assert opened["w1"].startswith('[{"x"')
    assert opened.objective_s <= closed.objective_s


def test_a_replicated_axis_cuts_nothing_of_the_value() -> None:
    found = planned(mlp, *MLP, pins={"w1": '[{?}, {?}] replicated={"x"}'})
    assert '"x"' not in found["w1"]


def tagged(w1: Any, w2: Any, x: Any) -> Any:
    return checkpoint_name(jnp.tanh(x @ w1), "hidden") @ w2


def form(found: Plan, tag: str) -> list[str]:
    """The forms that the uses of tagged values start from."""
    program: Program = found.program
    mesh = found.schedule.mesh
    return [found.schedule.form_before_use(v.id).text(mesh) for v in program.values if tag in v.tags]


@pytest.mark.parametrize("sharding", ["[{}, {}]", '[{"x"}, {"y"}]', '[{}, {"x", "y"}]'])
def test_a_tagged_intermediate_has_the_pinned_form(sharding: str) -> None:
    found = planned(tagged, *MLP, pins={"@hidden": sharding})
    assert form(found, "hidden") == [sharding]
    (name,) = [v.name for v in found.program.values if "hidden" in v.tags]
    assert found[name] == sharding


def test_pins_hold_inside_of_loops() -> None:
    def f(w: Any, x: Any) -> Any:
        def layer(c: Any, wk: Any) -> Any:
            return checkpoint_name(jnp.tanh(checkpoint_name(c, "carry") @ wk), "new"), None

        return checkpoint_name(jax.lax.scan(layer, x, w)[0], "last") * 2.0

    pins = {"@carry": '[{"y"}, {}]', "@new": '[{}, {"x"}]', "@last": '[{}, {"y"}]'}
    found = planned(f, f32(3, 8, 8), f32(8, 8), pins=pins)
    assert {f"@{tag}": form(found, tag)[0] for tag in ("carry", "new", "last")} == pins


def test_pins_hold_inside_of_branches() -> None:
    def f(p: Any, x: Any) -> Any:
        return jax.lax.cond(p > 0, lambda x: checkpoint_name(x @ x, "square"), lambda x: x, x)

    found = planned(f, f32(), f32(8, 8), pins={"@square": '[{"x"}, {"y"}]'})
    assert form(found, "square") == ['[{"x"}, {"y"}]']


def test_a_pin_by_primitive_meets_all_its_results() -> None:
    found = planned(mlp, *MLP, pins={"dot_general": '[{"x"}, {}]'})
    mesh = found.schedule.mesh
    products = [op.results[0] for op in found.program.body.ops if op.kind == "dot_general"]
    assert [found.schedule.form_before_use(v).text(mesh) for v in products] == ['[{"x"}, {}]'] * 2


def test_a_pin_on_one_of_several_equal_layers_is_kept_to_it() -> None:
    def f(ws: Any, x: Any) -> Any:
        for w in ws:
            h = jnp.tanh(x @ w)
            h = h * jax.nn.sigmoid(h) + 1.0
            x = x + h - h.mean(axis=-1, keepdims=True)
        return x

    found = planned(f, [f32(16, 16)] * 4, f32(8, 16), pins={"ws/1": '[{"y"}, {"x"}]', "ws/2": '[{"x"}, {"y"}]'})
    assert (found["ws/1"], found["ws/2"]) == ('[{"y"}, {"x"}]', '[{"x"}, {"y"}]')


def test_donated_state_comes_back_as_it_went_in() -> None:
    def step(state: Any, batch: Any) -> Any:
        grads = jax.grad(lambda s: jnp.square(mlp(s["w1"], s["w2"], batch)).sum())(state)
        return jax.tree.map(lambda w, g: w - 0.1 * g, state, grads), {"norm": grads["w1"].sum()}

    specs = ({"w1": MLP[0], "w2": MLP[1]}, MLP[2])
    for pins in ({}, {"state/w1": '[{"x"}, {"y"}]'}):
        found = planned(step, *specs, pins=pins, donate_argnums=(0,))
        assert [found[f"out/0/{w}"] for w in ("w1", "w2")] == [found[f"state/{w}"] for w in ("w1", "w2")]


@pytest.mark.parametrize("pin", ['[{"y":(1)2, ?}, {?}]', '[{"y":(1)2, ?}, {}]'])
def test_an_open_pin_on_a_part_of_an_axis_holds_where_the_whole_axis_does_not_divide(pin: str) -> None:
    found = planned(lambda w, g: g @ w, f32(100, 8), f32(8, 100), pins={"w": pin}, axes={"y": 8})
    assert found["w"] == '[{"y":(1)2}, {}]'


def test_an_output_is_cut_evenly_even_if_the_donated_input_is_padded() -> None:
    """JAX hands back even arrays only."""
    found = planned(
        lambda w, g: w - 0.1 * g, f32(7, 8), f32(7, 8), pins={"w": '[{"x"}, {}]'}, donate_argnums=(0,)
    )  # fmt: skip
    assert found["w"] == '[{"x"}, {}]'
    assert not found["out"].startswith('[{"')


def test_a_pin_on_an_output_comes_before_donation() -> None:
    found = planned(
        lambda w, g: w - 0.1 * g, f32(8, 8), f32(8, 8), pins={"w": '[{"x"}, {}]', "out": '[{}, {"x"}]'},
        donate_argnums=(0,),
    )  # fmt: skip
    assert (found["w"], found["out"]) == ('[{"x"}, {}]', '[{}, {"x"}]')


# -- pins that cannot hold -----------------------------------------------------------------------------------------


def test_two_pins_against_each_other_are_both_named() -> None:
    pins = [Pin("w1", '[{"x"}, {}]', source="a.yaml:1"), Pin("w*", '[{"y"}, {}]', source="a.yaml:2")]
    with pytest.raises(InfeasibleError, match=r"on w1: dimension 0(.|\n)*a.yaml:1(.|\n)*a.yaml:2"):
        plan(mlp, *MLP, mesh=AXES, hardware="tpu_v5e", constraints=pins)


def test_an_axis_that_does_not_divide_an_output_is_refused() -> None:
    with pytest.raises(InfeasibleError, match=r"output out .*cannot be held in .*divisible"):
        planned(lambda x: x * 2.0, f32(7, 8), pins={"out": '[{"x"}, {}]'})


def test_too_much_padding_is_refused() -> None:
    with pytest.raises(InfeasibleError, match=r"input x .*cannot be held in"):
        planned(lambda x: x * 2.0, f32(5, 8), pins={"x": '[{"y"}, {}]'})


def test_an_unknown_axis_is_refused() -> None:
    with pytest.raises(ShardingError, match=r'names axis "z", which mesh @mesh does not have; it has "x", "y"'):
        planned(mlp, *MLP, pins={"w1": '[{"z"}, {}]'})


def test_a_pinned_partial_sum_that_cannot_be_is_refused() -> None:
    for name in ("input w1", "output out"):
        with pytest.raises(
            InfeasibleError, match=rf"{name} .*cannot be held in .*are no partial sums; state `unreduced`"
        ):
            planned(mlp, *MLP, pins={name.split()[1]: '[{}, {}] unreduced={"x"}'})


def test_an_axis_of_the_mesh_may_follow_a_later_one() -> None:
    def f(x: Any, w: Any) -> Any:
        return (x @ w).sum(0)

    found = planned(f, f32(5, 4), f32(4, 16), pins={"w": '[{?}, {"y", ?}]'}, sub_axes={})
    assert found["w"] == '[{}, {"y", "x"}]'
    assert found.objective_s < planned(f, f32(5, 4), f32(4, 16), pins={"w": '[{?}, {"y"}]'}).objective_s


@pytest.mark.parametrize("part", ['"y":(1)2', '"y":(2)2', '"y"'])
@pytest.mark.parametrize("contracted", [6, 8])
def test_a_partial_sum_over_a_part_of_an_axis_can_be_pinned(part: str, contracted: int) -> None:
    """6 elements are summed over two of the four devices of y; whole operands count on one device, zeros elsewhere."""

    def f(x: Any, w: Any) -> Any:
        return checkpoint_name(x @ w, "sum").T

    sharding = f"[{{}}, {{}}] unreduced={{{part}}}"
    found = planned(f, f32(8, contracted), f32(contracted, 16), pins={"@sum": sharding})
    assert form(found, "sum") == [sharding]
    assert check_plan(found.to_dict()).ok


def test_all_that_a_plan_shows_can_be_stated() -> None:
    def f(x: Any, w: Any) -> Any:
        return checkpoint_name(x @ w, "sum").T

    pins = {"x": '[{}, {"y":(1)2}]', "w": '[{"y":(1)2}, {}]', "@sum": '[{}, {}] unreduced={"y":(1)2}'}
    found = planned(f, f32(8, 6), f32(6, 16), pins=pins)
    again = planned(f, f32(8, 6), f32(6, 16), pins={**pins, "out": found["out"]})
    assert again.objective_s == pytest.approx(found.objective_s, rel=1e-6)


@pytest.mark.parametrize("name", ["w1", "@hidden", "out"])
@pytest.mark.parametrize(
    ("first", "second"), [('"y"', '"x"'), ('"y":(1)2', '"y"'), ('"y":(2)2', '"y":(1)2'), ('"y":(2)2', '"x"')]
)
def test_two_pins_keep_axes_off_one_value(name: str, first: str, second: str) -> None:
    """Together they may name parts of one axis, or axes in another order than the mesh's, as no single one may."""
    pins = [Pin(name, f"[{{?}}, {{?}}] replicated={{{axes}}}") for axes in (first, second)]
    found = plan(tagged, *MLP, mesh=AXES, hardware="tpu_v5e", constraints=pins)
    assert first not in found[name] and second not in found[name]
    assert check_plan(found.to_dict()).ok
