"""Sub-axes and partial sums in plans, where they pay: what is chosen, and what it would cost without."""

from typing import Any

import jax
import jax.numpy as jnp
from plan_cases import f32

from autoshard import Pin, plan
from autoshard.api.plans import Plan
from autoshard.verify.plan.checker import check_plan

SPEC = jax.ShapeDtypeStruct


def kinds(made: Plan) -> list[str]:
    return sorted(made.collectives["kind"].tolist())


def test_8_kv_heads_lie_on_a_part_of_an_axis_of_16() -> None:
    """Nothing but the heads may be cut; on the whole axis they cannot be."""

    def heads(x: Any, w: Any) -> Any:
        return jnp.tanh(jnp.einsum("btd,dhk->bthk", x, w))

    pins = [Pin("x", "[{}, {}, {}]"), Pin("out", "[{}, {}, {?}, {}]")]
    specs = f32(8, 512, 512), f32(512, 8, 128)
    free = plan(heads, *specs, mesh={"x": 16}, hardware="tpu_v5e", constraints=pins)
    whole = plan(heads, *specs, mesh={"x": 16}, hardware="tpu_v5e", constraints=pins, sub_axes={"x": (16,)})
    assert free["out"] == '[{}, {}, {"x":(1)8}, {}]'
    assert free.objective_s < 0.9 * whole.objective_s
    assert check_plan(free.to_dict()).ok


def test_a_reshape_parts_an_axis_where_its_dimension_ends() -> None:
    """64 rows cut by 16 become 8 x 8 cut by the parts 8 and 2: nothing is sent."""

    def split(x: Any) -> Any:
        return jnp.tanh(x.reshape(8, 8, 4096))

    pins = [Pin("x", '[{"x"}, {}]'), Pin("out", "[{?}, {?}, {}]")]
    made = plan(split, f32(64, 4096), mesh={"x": 16}, hardware="tpu_v5e", constraints=pins)
    assert made["out"] == '[{"x":(1)8}, {"x":(8)2}, {}]'
    assert kinds(made) == []
    assert check_plan(made.to_dict()).ok


CUT = [Pin("x", '[{}, {"x"}]'), Pin("w1", '[{"x"}, {}]'), Pin("w2", '[{"x"}, {}]')]


def test_partial_sums_are_added_before_they_are_reduced() -> None:
    """Two matmuls over a cut dimension and their sum: one all-reduce, not two."""

    def total(x: Any, w1: Any, w2: Any) -> Any:
        return (x @ w1 - 2 * (x @ w2)).T

    specs = f32(512, 1024), f32(1024, 512), f32(1024, 512)
    pins = [*CUT, Pin("out", "[{}, {}]")]
    made = plan(total, *specs, mesh={"x": 8}, hardware="tpu_v5e", constraints=pins)
    assert kinds(made) in (["all_reduce"], ["all_gather", "reduce_scatter"])
    assert made["dot_general:0"].endswith('unreduced={"x"}')
    assert check_plan(made.to_dict()).ok


def test_a_partial_sum_is_scattered_into_the_sharding_that_its_consumer_wants() -> None:
    def product(x: Any, w1: Any) -> Any:
        return jnp.tanh(x @ w1)

    pins = [*CUT[:2], Pin("out", '[{"x"}, {}]')]
    made = plan(product, f32(512, 1024), f32(1024, 512), mesh={"x": 8}, hardware="tpu_v5e", constraints=pins)
    assert kinds(made) == ["reduce_scatter"]
    assert check_plan(made.to_dict()).ok


def test_a_gradient_that_is_added_up_in_a_loop_is_reduced_once_behind_it() -> None:
    """Microbatches: the sum stays partial over the loop (the cost of one reduction, not of eight)."""

    def accumulate(xs: Any, w: Any) -> Any:
        def body(total: Any, x: Any) -> tuple[Any, None]:
            return total + x.T @ jnp.tanh(x @ w), None

        return jax.lax.scan(body, jnp.zeros_like(w), xs)[0]

    pins = [Pin("xs", '[{}, {"x"}, {}]'), Pin("w", "[{}, {}]"), Pin("out", "[{}, {}]")]
    made = plan(accumulate, f32(8, 1024, 512), f32(512, 512), mesh={"x": 8}, hardware="tpu_v5e", constraints=pins)
    assert made.collectives["times"].max() == 1
    assert check_plan(made.to_dict()).ok
