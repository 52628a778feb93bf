"""Convolutions cut along space: neighbours exchange the edges of their blocks by collective permutes, as planned."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from running import Original, run_and_compare

import autoshard
from autoshard import Pin
from autoshard.verify import Runnable, check_plan, verify_plan
from autoshard.verify.derived import ASKED

RNG = np.random.default_rng(5)


def f32(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def conv(x, k, padding="SAME", dilation=(1, 1), groups=1):
    return lax.conv_general_dilated(
        x, k, (1, 1), padding, rhs_dilation=dilation, feature_group_count=groups,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip


def plan_of(f, *args, rows='[{}, {"x"}, {}, {}]', mesh=None):
    return autoshard.plan(
        f, *args, mesh=mesh or {"x": 4}, hardware="cpu_sim", argnames=["x", "k"],
        constraints=[Pin("x", rows), Pin("out", rows)],
    )  # fmt: skip


def right(plan, f, args):
    data = json.loads(json.dumps(plan.to_dict()))
    found = verify_plan(data, Runnable(plan.traced, f, lambda: args))
    assert [c.name for c in found.checks if c.status.value != "ok"] == [ASKED], str(found)
    return data


IMAGE, KERNEL = f32(4, 32, 8, 128), f32(3, 3, 128, 128) / 34


def test_a_convolution_of_a_cut_image_is_two_permutes_of_one_row_each():
    plan = plan_of(conv, IMAGE, KERNEL)
    right(plan, conv, (IMAGE, KERNEL))
    moved = plan.collectives
    assert list(moved["kind"]) == ["permute", "permute"]
    assert list(moved["bytes"]) == [4 * 8 * 128 * 4] * 2
    assert list(moved["axes"]) == ["x", "x"]


@pytest.mark.parametrize(
    ("window", "dilation", "padding"),
    [((5, 3), (1, 1), "SAME"), ((3, 3), (2, 1), "SAME"), ((4, 3), (1, 1), "SAME"), ((2, 3), (1, 1), ((0, 1), (2, 0)))],
)
def test_edges_are_as_wide_as_the_window_reaches(window, dilation, padding):
    kernel = f32(*window, 128, 128) / 34
    f = lambda x, k: conv(x, k, padding, dilation)  # noqa: E731
    plan = plan_of(f, IMAGE, kernel)
    right(plan, f, (IMAGE, kernel))
    assert set(plan.collectives["kind"]) == {"permute"}


def test_space_is_cut_in_two_dimensions_at_once_with_corners():
    rows = '[{}, {"x"}, {"y"}, {}]'
    plan = plan_of(conv, IMAGE, KERNEL, rows=rows, mesh={"x": 4, "y": 2})
    right(plan, conv, (IMAGE, KERNEL))
    assert set(plan.collectives["kind"]) == {"permute"}


def test_two_axes_cut_one_dimension_in_either_order():
    for rows in ('[{}, {"x", "y"}, {}, {}]', '[{}, {"y", "x"}, {}, {}]'):
        plan = plan_of(conv, IMAGE, KERNEL, rows=rows, mesh={"x": 4, "y": 2})
        right(plan, conv, (IMAGE, KERNEL))
        assert set(plan.collectives["kind"]) == {"permute"}


def test_the_gradient_of_the_image_exchanges_edges_too():
    f = lambda x, k: jax.grad(lambda x: jnp.sin(conv(x, k)).sum())(x)  # noqa: E731
    image = f32(1, 128, 8, 128)  # one image: no other way to share the work
    plan = plan_of(f, image, KERNEL)
    right(plan, f, (image, KERNEL))
    assert list(plan.collectives["kind"]) == ["permute"] * 4


def test_blocks_shorter_than_the_edges_are_not_offered():
    image, kernel = f32(4, 8, 8, 128), f32(7, 3, 128, 128) / 52
    plan = plan_of(conv, image, kernel, mesh={"x": 4})
    right(plan, conv, (image, kernel))
    assert "permute" not in set(plan.collectives["kind"])


def test_a_strided_convolution_is_not_cut_along_space():
    f = lambda x, k: lax.conv(x, k, (2, 2), "SAME")  # noqa: E731
    traced = autoshard.frontends.jax.function.trace(f, f32(2, 4, 16, 16), f32(4, 4, 3, 3))
    (op,) = traced.program.body.ops
    assert op.rule.halos == ()


CORRUPTIONS = {
    "wider edges than the window": lambda rule: rule["halos"][0].__setitem__(4, 5),
    "edges on the wrong dimension": lambda rule: rule["halos"][0].__setitem__(1, 0),
    "edges of the kernel": lambda rule: rule["halos"][0].__setitem__(0, 1),
    "no edges at all": lambda rule: rule.pop("halos"),
    "edges on one side only": lambda rule: rule["halos"][0].__setitem__(3, 0),
}


@pytest.mark.parametrize("what", CORRUPTIONS)
def test_wrong_edges_in_a_plan_are_caught(what):
    data = json.loads(json.dumps(plan_of(conv, IMAGE, KERNEL).to_dict()))
    assert check_plan(data).findings == ()
    op = next(o for o in data["program"]["body"]["ops"] if o["kind"] == "conv_general_dilated")
    CORRUPTIONS[what](op["rule"])
    assert check_plan(data).findings


def test_edges_cut_by_random_plans():
    from naive_schedule import MESHES, naive_schedule

    original = Original(lambda x, k: jnp.tanh(conv(conv(x, k), k)), f32(2, 8, 8, 8), f32(3, 3, 8, 8) / 8)
    exchanged = 0
    for seed in range(4):
        schedule = naive_schedule(original.traced.program, MESHES["2x2x2"], seed, place=0.9)
        ops = original.traced.program.body.ops
        exchanged += sum(len(schedule.placements[op.id].exchanges(op.rule, schedule.mesh)) for op in ops)
        report = run_and_compare(original, schedule)
        assert report.ok, report
    assert exchanged
