"""Axes cut a dimension in whichever order is cheapest, without a statement that says so."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from plan_cases import Pin, f32

from autoshard import plan
from autoshard.api.verbs import ask
from autoshard.frontends.jax.function import trace
from autoshard.planning.axis_orders import axis_orders


def orders(axes: Mapping[str, Any], *pins: str, ops: int = 1, hardware: str = "tpu_v5e") -> tuple[tuple[str, ...], ...]:
    def f(x: Any) -> Any:
        for _ in range(ops):
            x = jnp.sin(x)
        return x

    traced = trace(f, f32(64, 64), name="f")
    question = ask(traced, mesh=axes, hardware=hardware, constraints=[Pin("x", pin) for pin in pins])
    return axis_orders(question.problem)


def test_two_axes_of_other_sizes_are_tried_in_both_orders() -> None:
    assert orders({"x": 2, "y": 4}) == (("y", "x"),)


def test_axes_of_one_size_over_the_same_links_stay_as_they_are() -> None:
    assert orders({"x": 2, "y": 2}) == ()
    assert orders({"x": 2, "y": 4, "z": 2}) == (("x", "z", "y"), ("y", "x", "z"))


def test_axes_of_one_size_over_other_links_are_tried_in_both_orders() -> None:
    assert orders({"x": 8, "y": 8}, hardware="h100") == (("y", "x"),)


def test_axes_of_size_one_have_no_order() -> None:
    assert orders({"x": 1, "y": 4}) == ()


def test_axes_alike_have_the_order_that_a_statement_begins_with() -> None:
    assert orders({"x": 2, "y": 2}, '[{"y"}, {}]') == (("y", "x"),)
    assert orders({"x": 2, "y": 2}, '[{"x"}, {}]') == ()


def test_three_axes_are_tried_in_all_orders_in_programs_of_few_ops_only() -> None:
    assert len(orders({"x": 2, "y": 3, "z": 4})) == 5
    assert orders({"x": 2, "y": 3, "z": 4}, ops=300) == ()


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
