"""How much of the matrix unit the channels of convolutions fill, and that the checker works it out alike."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoshard.api import verbs as api
from autoshard.costs.channels import is_of_kernel, share_of_unit
from autoshard.costs.work import local_sizes
from autoshard.frontends.jax.function import trace
from autoshard.program.as_json import program_to_json
from autoshard.program.program import Op, Program
from autoshard.verify import check_plan
from autoshard.verify.plan.placed import uncut
from autoshard.verify.plan.rules import read_rule
from autoshard.verify.plan.work import padded_channels

SPEC = jax.ShapeDtypeStruct
NAMES = ("NHWC", "HWIO", "NHWC")


def convolved(x: Any, w: Any, stride: int = 1, groups: int = 1, padding: str = "SAME") -> Any:
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=NAMES, feature_group_count=groups
    )


def convolutions(program: Program) -> list[Op]:
    return [op for op, _ in program.walk() if op.kind == "conv_general_dilated"]


def program_of(taken: int, made: int, *, window: int = 3, stride: int = 1, groups: int = 1, image: int = 8) -> Program:
    """A convolution, the gradient of its kernel and that of its input."""

    def both(x: Any, w: Any) -> Any:
        return jax.vjp(lambda x, w: convolved(x, w, stride, groups), x, w)[1](jnp.ones((4, image, image, made)))

    def step(x: Any, w: Any) -> Any:
        return convolved(x, w, stride, groups), both(x, w)

    arrays = (
        SPEC((4, image * stride, image * stride, taken), jnp.float32),
        SPEC((window, window, taken // groups, made), jnp.float32),
    )
    return trace(step, *arrays, name="convolutions").program


def shares(program: Program, tile: int) -> list[float]:
    """By op: the convolution, and its two gradients in the order in which JAX makes them."""
    found = []
    for op in convolutions(program):
        assert op.rule is not None
        sizes = local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64))
        found.append(float(share_of_unit(op.rule, sizes, tile)[0]))
    return found


@pytest.mark.parametrize(
    ("taken", "made", "tile", "share"),
    [
        (128, 128, 128, 1.0),
        (64, 128, 128, 0.5),
        (64, 64, 128, 0.25),
        (128, 128, 256, 0.5),  # measured: 0.41 of the peak where 256 by 256 reaches 0.91
        (128, 256, 256, 0.5),
        (64, 64, 256, 0.125),
        (256, 256, 256, 1.0),
    ],
)
def test_the_side_of_fewer_channels_fills_the_units_tile_and_the_other_lanes_of_128(
    taken: int, made: int, tile: int, share: float
) -> None:
    assert shares(program_of(taken, made), tile)[0] == pytest.approx(share)


def test_the_gradient_of_a_kernel_fills_a_tile_with_the_side_of_more_channels() -> None:
    program = program_of(64, 128)
    gradients = [op for op in convolutions(program) if op.rule is not None and is_of_kernel(op.rule)]
    assert len(gradients) == 1
    found = dict(zip([op.id for op in convolutions(program)], shares(program, 128), strict=True))
    assert found[gradients[0].id] == 1.0
    assert sorted(found.values()) == [0.5, 0.5, 1.0]


@pytest.mark.parametrize(("window", "stride"), [(3, 1), (3, 2), (1, 1), (1, 2)])
def test_of_a_convolution_and_its_gradients_one_is_the_kernels(window: int, stride: int) -> None:
    program = program_of(16, 32, window=window, stride=stride)
    assert sum(is_of_kernel(op.rule) for op in convolutions(program) if op.rule is not None) == 1


def test_grouped_convolutions_are_not_padded() -> None:
    assert shares(program_of(32, 32, groups=4), 128)[0] == 1.0


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([3, 16, 64, 96, 128, 192, 320]),
    st.sampled_from([16, 64, 128, 200, 256]),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 2]),
    st.sampled_from([128, 256]),
)
def test_the_checker_pads_as_the_prices_do(taken: int, made: int, window: int, stride: int, tile: int) -> None:
    program = program_of(taken, made, window=window, stride=stride)
    rules = {op["id"]: op["rule"] for op in program_to_json(program)["body"]["ops"]}
    for op, share in zip(convolutions(program), shares(program, tile), strict=True):
        placed = uncut(read_rule(rules[op.id]))
        assert padded_channels(placed, tile) == pytest.approx(1 / share)


def test_a_plan_with_convolutions_has_padded_channels_in_its_price_and_verifies() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.square(convolved(x, w)))

    arrays = (SPEC((3, 3, 64, 128), jnp.float32), SPEC((32, 16, 16, 64), jnp.float32))
    plan = api.plan(lambda w, x: w - 0.1 * jax.grad(loss)(w, x), *arrays, mesh={"x": 4}, hardware="v6e@compiler")
    assert check_plan(plan.to_dict()).ok


@pytest.mark.parametrize(("batch", "channels"), [(0, 3), (4, 0)])
def test_a_plan_with_a_convolution_of_nothing_verifies(batch: int, channels: int) -> None:
    arrays = SPEC((batch, 8, 8, channels), jnp.float32), SPEC((3, 3, channels, 4), jnp.float32)
    plan = api.plan(convolved, *arrays, mesh={"x": 2, "y": 2}, hardware="v6e@compiler")
    assert check_plan(plan.to_dict()).findings == ()
