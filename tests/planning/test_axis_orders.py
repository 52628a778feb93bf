"""Axes cut a dimension in whichever order is cheapest, without a statement that says so."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from plan_cases import Pin, f32, problem, program_of

from autoshard import MaxReshards, plan
from autoshard.api.verbs import ask
from autoshard.frontends.jax.function import trace
from autoshard.planning import Decision, Model, build_model, decide, fewer_orders, stated_stages
from autoshard.planning.axis_orders import axis_orders, parts_apart
from autoshard.planning.decide import search_plan
from autoshard.planning.parts import PART_OPS
from autoshard.request.asking import Asked
from autoshard.search_options import SearchOptions
from autoshard.solver.solution import Stopped

MANY_OPS = 300


def of(ops: int) -> Any:
    """A program of so many ops."""

    def f(x: Any) -> Any:
        for _ in range(ops):
            x = jnp.sin(x)
        return x

    return trace(f, f32(64, 64), name="f")


def asked(axes: Mapping[str, Any], *pins: str, ops: int = 1, hardware: str = "tpu_v5e") -> Asked:
    return ask(of(ops), mesh=axes, hardware=hardware, constraints=[Pin("x", pin) for pin in pins])


def orders(axes: Mapping[str, Any], *pins: str, ops: int = 1, hardware: str = "tpu_v5e") -> tuple[tuple[str, ...], ...]:
    return axis_orders(asked(axes, *pins, ops=ops, hardware=hardware).problem)


def apart(axes: Mapping[str, Any], *pins: str, ops: int = 1) -> set[str]:
    """The axes whose parts are axes of their own."""
    problem = asked(axes, *pins, ops=ops).problem
    return {problem.mesh.atoms[atom].name for part in parts_apart(problem) for atom in part}


def test_two_axes_of_other_sizes_are_tried_in_both_orders() -> None:
    assert orders({"x": 2, "y": 4}) == (("y", "x"),)


def test_axes_alike_stay_as_they_are_in_programs_of_many_ops() -> None:
    assert orders({"x": 2, "y": 2}) == (("y", "x"),)
    assert orders({"x": 2, "y": 2}, ops=MANY_OPS) == ()


def test_of_three_axes_those_alike_stay_as_they_are_from_fewer_ops_on() -> None:
    assert len(orders({"x": 2, "y": 2, "z": 2}, ops=120)) == 5
    assert orders({"x": 2, "y": 2, "z": 2}, ops=121) == ()
    assert orders({"x": 2, "y": 4, "z": 2}, ops=121) == (("x", "z", "y"), ("y", "x", "z"))


def test_a_pin_of_one_of_three_axes_alike_does_not_beat_a_plan_called_optimal() -> None:
    def f(x: Any, w1: Any, w2: Any) -> Any:
        y = x @ w1
        return jnp.tanh(y @ w2).sum(0), y.sum(1)

    specs = (f32(1024, 2048), f32(2048, 512), f32(512, 4096))
    options: dict[str, Any] = {"mesh": {"x": 2, "y": 2, "z": 2}, "hardware": "tpu_v5p"}
    free, stated = plan(f, *specs, **options), plan(f, *specs, constraints=[Pin("x", '[{"x"}, {}]')], **options)
    assert free.status == stated.status == "optimal"
    assert free.objective_s <= stated.objective_s * (1 + 1e-6)


def test_axes_of_one_size_over_other_links_are_tried_in_both_orders() -> None:
    assert orders({"x": 8, "y": 8}, hardware="h100") == (("y", "x"),)


def test_parts_that_a_statement_names_are_tried_in_both_orders() -> None:
    assert orders({"x": 8}, '[{"x":(1)2}, {}]') == (("x:(2)4", "x:(1)2"),)


def test_parts_that_no_statement_names_keep_their_order() -> None:
    assert orders({"x": 8}, "[{?}, {}]") == ()


def test_other_axes_come_between_parts_where_a_statement_says_so() -> None:
    stated = '[{"x":(1)2, "y", "x":(2)2}, {}]'
    assert ("x:(1)2", "y", "x:(2)2") in orders({"x": 4, "y": 2}, stated, ops=MANY_OPS)


def test_axes_are_tried_in_both_orders_where_there_are_too_many_parts_for_all() -> None:
    assert orders({"x": 4, "y": 8}, '[{"y":(1)2}, {}]', ops=MANY_OPS) == (("y:(1)2", "y:(2)4", "x"),)


def test_a_part_is_split_where_an_axis_of_its_size_is() -> None:
    """Six heads are cut by two of the four devices of the second axis, or part."""

    def f(x: Any, w: Any) -> Any:
        return jnp.einsum("bhij,bhjk->bhik", x, w)

    specs = (f32(2, 6, 101, 101), f32(2, 6, 101, 101))
    axes = plan(f, *specs, mesh={"a": 2, "b": 4}, hardware="h100", constraints=[Pin("x", '[{"a"}, {?}, {?}, {?}]')])
    stated = [Pin("x", '[{"ab":(1)2}, {?}, {?}, {?}]')]
    parts = plan(f, *specs, mesh={"ab": 8}, hardware="h100", constraints=stated)
    assert parts.objective_s == pytest.approx(axes.objective_s)
    assert parts["out"] == '[{"ab":(1)2}, {"ab":(2)2}, {}, {}]'


def test_parts_that_a_program_needs_go_with_the_part_that_a_statement_names() -> None:
    problem = ask(
        trace(lambda x, w: x @ w, f32(2, 64, 6), f32(6, 64)), mesh={"x": 8}, hardware="h100",
        constraints=[Pin("x", '[{"x":(1)2}, {}, {?}]')],
    ).problem  # fmt: skip
    assert problem.mesh.sizes == (2, 2, 2)
    assert parts_apart(problem) == ((0,), (1, 2))


def test_three_axes_and_parts_are_axes_in_programs_of_any_size() -> None:
    assert apart({"x": 4, "y": 8}, '[{"y":(1)2}, {}]', ops=MANY_OPS) == {"y"}


@pytest.mark.parametrize("axes", [{"x": 4, "y": 16}, {"y": 64}], ids=str)
def test_four_axes_and_parts_are_axes_in_programs_of_few_ops_only(axes: dict[str, int]) -> None:
    stated = '[{"y":(1)2}, {"y":(4)4}]' if "x" in axes else '[{"y":(2)2}, {"y":(4)4}]'
    assert apart(axes, stated, ops=PART_OPS) == {"y"}
    assert apart(axes, stated, ops=PART_OPS + 1) == set()


def test_of_parts_that_are_too_many_those_of_earlier_axes_are_axes() -> None:
    stated = '[{"y":(1)2, "x":(1)2}, {}]'
    assert apart({"x": 4, "y": 8}, stated, ops=MANY_OPS) == {"x"}
    assert apart({"y": 8, "x": 4}, stated, ops=MANY_OPS) == {"y"}


def test_a_note_tells_where_ops_are_not_cut_by_the_parts_that_statements_name() -> None:
    stated, told = '[{"y":(1)2, "x":(1)2}, {}]', "statements name parts of y; in a program of 300 ops"
    assert any(told in note for note in asked({"x": 4, "y": 8}, stated, ops=MANY_OPS).notes)
    assert not any("name parts" in note for note in asked({"x": 4, "y": 8}, stated).notes)


def test_axes_of_size_one_have_no_order() -> None:
    assert orders({"x": 1, "y": 4}) == ()


@pytest.mark.parametrize("pin", ['[{"y"}, {}]', '[{"x"}, {}]', '[{"x"}, {"y"}]', '[{?}, {?}] replicated={"x"}'])
def test_axes_alike_that_a_statement_tells_apart_are_tried_in_both_orders(pin: str) -> None:
    assert orders({"x": 2, "y": 2}, pin, ops=MANY_OPS) == (("y", "x"),)


def test_a_statement_without_axes_tells_none_apart() -> None:
    assert orders({"x": 2, "y": 2}, "[{}, {}]", ops=MANY_OPS) == ()


@pytest.mark.parametrize("axes", [{"a": 2, "b": 2}, {"b": 2, "a": 2}], ids=["a first", "b first"])
def test_the_order_of_the_mesh_is_nothing_to_axes_alike(axes: dict[str, int]) -> None:
    """A sum over b is sliced along a before it is scattered along b, so that less is sent."""

    def f(x: Any, y: Any) -> Any:
        s = x.sum(axis=1)
        return s + y, s * 3.0

    stated = [Pin("x", '[{}, {"b"}]'), MaxReshards(1)]
    found = plan(f, f32(8, 16), f32(8), mesh=axes, hardware="h100", constraints=stated)
    assert found["out/0"] == '[{"a", "b"}]'


def test_axes_alike_that_stages_of_strategies_place_are_tried_in_both_orders() -> None:
    traced = of(MANY_OPS)
    roles = {"x": ("batch", None)}
    staged = ask(traced, mesh={"x": 2, "y": 2}, hardware="tpu_v5e", priorities=["data"], roles=roles)
    assert axis_orders(staged.problem) == (("y", "x"),)


def test_stages_have_the_orders_of_all_statements() -> None:
    traced = of(MANY_OPS)
    pins = [Pin("x", "[{?}, {}]"), Pin("out", '[{"y"}, {}]', priority=1)]
    problem = ask(traced, mesh={"x": 2, "y": 2}, hardware="tpu_v5e", constraints=pins).problem
    first, _ = stated_stages(problem)
    assert axis_orders(problem.under(first.pins)) == axis_orders(problem) == (("y", "x"),)


def test_three_axes_are_tried_in_all_orders_in_programs_of_few_ops_only() -> None:
    assert len(orders({"x": 2, "y": 3, "z": 4})) == 5
    assert orders({"x": 2, "y": 3, "z": 4}, ops=MANY_OPS) == ()


def test_of_many_axes_only_the_orders_that_statements_use_or_leave_open_are_tried() -> None:
    four = {"x": 2, "y": 3, "z": 4, "u": 5}
    assert orders(four) == ()
    assert orders(four, '[{"y"}, {}]') == ()
    assert orders(four, '[{"y", ?}, {}]') == (("y", "x", "z", "u"),)
    assert orders(four, '[{"z", "y"}, {}]') == (("z", "y", "x", "u"),)


def test_joined_dimensions_are_cut_by_a_later_axis_first() -> None:
    def f(x: Any) -> Any:
        return jnp.tanh(x).reshape(-1)

    found = plan(f, f32(2, 4), mesh={"a": 4, "b": 2}, hardware="h100", constraints=[Pin("x", '[{"b"}, {"a"}]')])
    assert found.partition_specs("out") == PartitionSpec(("b", "a"))
    assert found.cost.communication_s == 0.0


@pytest.mark.parametrize("share", [0.9, 0.75])
def test_a_plan_within_a_memory_limit_is_not_beaten_by_stating_an_order(share: float) -> None:
    def chain(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
        return x @ w1 @ w2 @ w3

    specs = (f32(1024, 512), f32(512, 2048), f32(2048, 512), f32(512, 1024))
    options: dict[str, Any] = {"mesh": {"x": 2, "y": 4}, "hardware": "tpu_v5e"}
    free = plan(chain, *specs, **options)
    limit = int(share * free.memory.peak_bytes)
    found = plan(chain, *specs, memory_limit=limit, **options)
    stated = plan(chain, *specs, memory_limit=limit, constraints=[Pin("out", '[{?}, {"y", "x", ?}]')], **options)
    assert found.status == stated.status == "optimal"
    assert found.cost.step_s <= stated.cost.step_s * (1 + 1e-6)


def test_a_plan_with_a_later_axis_first_computes_what_one_device_computes() -> None:
    def f(x: Any) -> Any:
        return jnp.tanh(x).reshape(-1)

    found = plan(f, f32(2, 4), mesh={"a": 4, "b": 2}, hardware="h100", constraints=[Pin("x", '[{"b"}, {"a"}]')])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert np.allclose(found.jit()(x), np.tanh(x).reshape(-1), atol=1e-6)


def within(axes: dict[str, int], limit: int) -> Model:
    program = program_of(lambda x, w1, w2: jnp.tanh(x @ w1) @ w2, f32(512, 256), f32(256, 1024), f32(1024, 256))
    return build_model(problem(program, axes, profile="tpu_v5p", memory_limit=limit))


def test_within_a_memory_limit_three_axes_alike_begin_with_a_plan_of_one_order() -> None:
    axes = {"x": 2, "y": 2, "z": 2}
    limit = decide(within(axes, 1 << 30)).memory.peak_bytes - 1
    model, seen = within(axes, limit), []
    (start,) = fewer_orders.starts(model, SearchOptions(), search_plan, seen)
    assert seen == [start]
    plan_of_one_order = model.schedule(start)
    assert model.simulate(plan_of_one_order).peak_bytes <= limit
    dims = [dim for layout in plan_of_one_order.definitions.values() for dim in layout.dims]
    assert all(list(dim) == sorted(dim) for dim in dims)
    assert fewer_orders.starts(within({"x": 2, "y": 4}, limit), SearchOptions(), search_plan, []) == ()


def test_an_interrupt_of_the_search_with_one_order_ends_all_with_its_plan() -> None:
    axes = {"x": 2, "y": 2, "z": 2}
    limit = decide(within(axes, 1 << 30)).memory.peak_bytes - 1
    model, seen = within(axes, limit), []

    def stopped(model: Model, options: SearchOptions) -> Decision:
        found = search_plan(model, options)
        return replace(found, stats={"rounds": [{"stopped": Stopped.INTERRUPT}]})

    with pytest.raises(KeyboardInterrupt):
        fewer_orders.starts(model, SearchOptions(), stopped, seen)
    assert len(seen) == 1
