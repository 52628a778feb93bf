"""Slices and pads of cut dimensions: devices send only the rows that others need, or fill in what they have."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from naive_schedule import MESHES, naive_schedule
from running import Original, run_and_compare

import autoshard
from autoshard import Pin
from autoshard.verify import Runnable, check_plan, verify_plan
from autoshard.verify.derived import ASKED

RNG = np.random.default_rng(11)
ROWS, COLUMNS = 64, 24


def f32(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


X = f32(ROWS, COLUMNS)


def slices(x):
    """Runs of rows and columns in every position, of several types, taken and filled."""
    whole = lax.convert_element_type(x * 9, np.int32)
    return {
        "halves": jnp.sin(x[:32]) * x[32:], "shift": x[1:] * x[:-1], "window": jnp.sin(x[3:61]),
        "corner": jnp.cos(x[5:37, 4:20]), "last": x[-1], "few": jnp.tanh(x[40:43]), "integers": whole[16:32],
        "truth": (x > 0)[1:] & (x > 0)[:-1], "bits": (x[8:24] > 0), "steps": x[::2],
        "parts": jnp.split(x, [16, 24]), "equal parts": [jnp.sin(p) for p in jnp.split(x, 3, 1)],
        "at run time": lax.dynamic_slice(x, (whole[0, 0], 2), (8, 6)), "column": x[:, 5],
        "padded": jnp.pad(x, ((3, 5), (1, 0)), constant_values=2.0),
        "cut off": lax.pad(x, 0.0, ((-3, 3, 0), (0, 0, 0))),
        "nothing": x[5:5], "padding alone": lax.pad(x, 1.0, ((-64, 32, 0), (0, 0, 0))),
        "spread": lax.pad(x, 0.0, ((0, 1, 1), (0, 0, 0))), "rows of truth": jnp.pad(x > 0, ((0, 8), (0, 0))),
        "gradient": jax.grad(lambda x: (jnp.sin(x[1:]) * x[:-1]).sum() + (x[:32] * x[32:]).sum())(x),
    }  # fmt: skip


@pytest.fixture(scope="module")
def original():
    return Original(slices, X)


OFTEN = [("3x2", 5)]
MORE = [("2x2x2", 2)] + [(mesh, seed) for mesh in MESHES for seed in range(20, 24)]


@pytest.mark.parametrize(("mesh", "seed"), [*OFTEN, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)])
def test_random_placements_give_the_values_of_one_device_with_the_planned_permutes(original, mesh, seed):
    schedule = naive_schedule(original.traced.program, MESHES[mesh], seed, uneven=True, place=0.9)
    ops = [op for op in original.traced.program.body.ops if op.rule and op.rule.cutouts]
    assert any(schedule.placements[op.id].moved(op.rule) for op in ops)
    assert any(schedule.placements[op.id].exchanges(op.rule, schedule.mesh) for op in ops)
    report = run_and_compare(original, schedule)
    assert report.ok, report


def plan_of(f, x=X, rows='[{"x"}, {}]', out=None, mesh=None, hardware="tpu_v5e"):
    pins = [Pin("x", rows)] + ([Pin("out", out)] if out else [])
    return autoshard.plan(f, x, mesh=mesh or {"x": 8}, hardware=hardware, argnames=["x"], constraints=pins)


def right(plan, f, *args):
    data = json.loads(json.dumps(plan.to_dict()))
    found = verify_plan(data, Runnable(plan.traced, f, lambda: args))
    assert [c.name for c in found.checks if c.status.value != "ok"] == [ASKED], str(found)
    return data


def moved(plan):
    """(kind, rows that a device gives) of each collective."""
    found = zip(plan.collectives["kind"], plan.collectives["bytes"], strict=True)
    return [(kind, int(size) // 4 // LONG.shape[1]) for kind, size in found]


LONG = f32(1024, 512)


def test_a_shift_by_one_row_sends_one_row():
    def f(x):
        return jax.grad(lambda x: (jnp.sin(x[1:]) * x[:-1]).sum())(x)

    plan = plan_of(f, LONG, out='[{"x"}, {}]')
    right(plan, f, LONG)
    assert moved(plan) == [("permute", 1), ("permute", 1)]


def test_rows_are_sent_after_a_step_through_their_columns():
    """Every third of 24 columns is taken first, then at most three rows change devices."""

    def f(x):
        return jnp.sin(x[4:60, ::3])

    plan = plan_of(f, out='[{"x"}, {}]', hardware="cpu_sim")
    right(plan, f, X)
    assert plan.collectives[["kind", "bytes"]].values.tolist() == [["permute", 3 * 8 * 4]]


def test_a_pad_sends_columns_of_its_own_rows_where_it_cuts_these():
    """6 of 24 rows, of which a device keeps a quarter, of 3 columns that move."""
    x = f32(16, 24)

    def f(x):
        return lax.pad(jnp.sin(x), jnp.float32(7), ((4, 4, 0), (3, 5, 0)))

    plan = plan_of(f, x, '[{}, {"x"}]', '[{"y"}, {"x"}]', mesh={"x": 2, "y": 4}, hardware="cpu_sim")
    right(plan, f, x)
    assert set(plan.collectives["kind"]) == {"permute"}


def test_half_of_the_rows_is_two_permutes_where_links_are_switched():
    large = jax.ShapeDtypeStruct((4096, 512), jnp.float32)
    plan = plan_of(lambda x: jnp.sin(x[:2048]), large, out='[{"x"}, {}]', hardware="h100")
    assert moved(plan) == [("permute", 256), ("permute", 256)]


@pytest.mark.parametrize("rows", ['[{"x", "y"}, {}]', '[{"y", "x"}, {}]'])
def test_two_axes_cut_one_dimension_in_either_order(rows):
    def f(x):
        return jax.grad(lambda x: (jnp.sin(x[2:]) * x[:-2]).sum())(x)

    plan = plan_of(f, LONG, rows, rows, {"x": 2, "y": 4})
    right(plan, f, LONG)
    assert {kind for kind, _ in moved(plan)} == {"permute"}
    assert max(rows for _, rows in moved(plan)) <= 2


def test_the_last_row_is_summed_with_zeros_and_nothing_else_moves():
    def f(x):
        return jnp.sin(x[-1])

    plan = plan_of(f, LONG, out="[{}]")
    right(plan, f, LONG)
    assert {"all_to_all", "permute"}.isdisjoint(plan.collectives["kind"])
    assert max(rows for _, rows in moved(plan)) <= 1


def test_a_row_whose_number_is_known_at_run_time_is_summed_too():
    def f(x, i):
        return jnp.sin(lax.dynamic_index_in_dim(x, i, keepdims=False))

    number = jnp.int32(700)
    plan = autoshard.plan(
        f, LONG, number, mesh={"x": 8}, hardware="tpu_v5e", argnames=["x", "i"],
        constraints=[Pin("x", '[{"x"}, {}]'), Pin("out", "[{}]")],
    )  # fmt: skip
    right(plan, f, LONG, number)
    assert max(rows for _, rows in moved(plan)) <= 1


def test_a_pad_of_a_whole_value_is_cut_without_a_collective():
    def f(x):
        return jnp.sin(jnp.pad(x, ((16, 0), (0, 0))))

    plan = plan_of(f, f32(112, 512), "[{}, {}]", '[{"x"}, {}]')
    right(plan, f, f32(112, 512))
    assert not len(plan.collectives)


def test_random_keys_are_not_cut_out():
    keys = jax.random.split(jax.random.key(0), 64)
    op = autoshard.frontends.jax.function.trace(lambda k: k[8:16], keys).program.body.ops[0]
    assert not op.rule.filled


CORRUPTIONS = {
    "another start": lambda c, p: c.__setitem__(5, 2000),
    "a dimension that is not taken in part": lambda c, p: c.__setitem__(2, 1),
    "another factor": lambda c, p: c.__setitem__(4, c[3]),
    "a slice that grows": lambda c, p: c.__setitem__(6, True),
    "only one side cut": lambda c, p: p["factors"].__setitem__(c[4], []),
    "sides cut by different axes": lambda c, p: p["factors"].__setitem__(c[4], [1]),
}


@pytest.mark.parametrize("what", CORRUPTIONS)
def test_wrong_cutouts_in_a_plan_are_caught(what):
    plan = plan_of(lambda x: (jnp.sin(x[1:]) * x[:-1]).sum(0), LONG, mesh={"x": 4, "y": 2})
    data = json.loads(json.dumps(plan.to_dict()))
    assert check_plan(data).findings == ()
    op = next(o for o in data["program"]["body"]["ops"] if o["kind"] == "slice")
    (cutout,), placement = op["rule"]["cutouts"], data["schedule"]["placements"][str(op["id"])]
    assert placement["factors"][cutout[3]] == placement["factors"][cutout[4]] == [0]
    CORRUPTIONS[what](cutout, placement)
    assert check_plan(data).findings
