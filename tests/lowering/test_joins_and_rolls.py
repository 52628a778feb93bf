"""Joining and rolling cut dimensions: devices send only the elements that others need."""

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
from autoshard.frontends.jax.function import trace
from autoshard.verify import Runnable, check_plan, verify_plan
from autoshard.verify.derived import ASKED

RNG = np.random.default_rng(12)


def f32(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


X, LONG = f32(64, 24), f32(1024, 512)


def joins(x):
    """Runs that are joined and rolled, of several sizes and types, and gradients through them."""
    truth, whole = x > 0, lax.convert_element_type(x * 9, np.int32)
    return {
        "two": jnp.concatenate([jnp.sin(x), x * 2]), "three": jnp.concatenate([x[:40], x, -x[40:]], 0),
        "large and small": jnp.concatenate([x, x[:1]]), "small first": jnp.concatenate([x[3:5], x]),
        "columns": jnp.concatenate([x, jnp.cos(x)], 1), "truth": jnp.concatenate([truth, truth]),
        "integers": jnp.concatenate([whole, whole[:16]]), "one": jnp.concatenate([x]),
        "by one": jnp.roll(x, 1, 0), "back": jnp.sin(jnp.roll(x, -3, 0)), "far": jnp.roll(x, 37, 0),
        "blocks": jnp.roll(x, 16, 0), "both": jnp.roll(x, (5, -2), (0, 1)), "truths": jnp.roll(truth, 2, 0),
        "gradient": jax.grad(lambda x: (jnp.roll(x, 3, 0) * jnp.sin(x)).sum())(x),
        "gradient of a join": jax.grad(lambda x: jnp.sin(jnp.concatenate([x, x * x])).sum())(x),
    }  # fmt: skip


@pytest.fixture(scope="module")
def original():
    return Original(joins, X)


OFTEN = [("3x2", 5)]
MORE = [("2x2x2", 2)] + [(mesh, seed) for mesh in MESHES for seed in range(20, 24)]


@pytest.mark.parametrize(("mesh", "seed"), [*OFTEN, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)])
def test_random_placements_give_the_values_of_one_device_with_the_planned_permutes(original, mesh, seed):
    program = original.traced.program
    schedule = naive_schedule(program, MESHES[mesh], seed, uneven=True, place=0.9)
    exchanged = {
        op.kind
        for op in program.body.ops
        if op.rule and op.rule.cutouts and schedule.placements[op.id].exchanges(op.rule, schedule.mesh)
    }
    assert exchanged & {"concatenate", "roll"}
    report = run_and_compare(original, schedule)
    assert report.ok, report


def plan_of(f, *args, pins, mesh=None):
    names = [f"x{k}" for k in range(len(args))]
    return autoshard.plan(
        f, *args, mesh=mesh or {"x": 8}, hardware="tpu_v5e", argnames=names,
        constraints=[Pin(name, text) for name, text in pins.items()],
    )  # fmt: skip


def right(plan, f, *args):
    data = json.loads(json.dumps(plan.to_dict()))
    found = verify_plan(data, Runnable(plan.traced, f, lambda: args))
    assert [c.name for c in found.checks if c.status.value != "ok"] == [ASKED], str(found)


def moved(plan):
    """(kind, rows that a device gives) of each collective."""
    found = zip(plan.collectives["kind"], plan.collectives["bytes"], strict=True)
    return [(kind, int(size) // 4 // LONG.shape[1]) for kind, size in found]


ROWS = '[{"x"}, {}]'


def test_a_roll_by_one_row_sends_one_row():
    def f(x):
        return jnp.sin(jnp.roll(x, 1, axis=0))

    plan = plan_of(f, LONG, pins={"x0": ROWS, "out": ROWS})
    right(plan, f, LONG)
    assert moved(plan) == [("permute", 1)]


def test_neighbours_on_a_circle_and_their_gradient_send_a_row_each_way():
    def f(x):
        return jax.grad(lambda x: jnp.square(jnp.roll(x, 1, axis=0) + jnp.roll(x, -1, axis=0) - 2 * x).sum())(x)

    plan = plan_of(f, LONG, pins={"x0": ROWS, "out": ROWS})
    right(plan, f, LONG)
    assert moved(plan) == [("permute", 1)] * 4


def test_a_roll_by_blocks_hands_every_block_on_once():
    def f(x):
        return jnp.sin(jnp.roll(x, 256, axis=0))

    plan = plan_of(f, LONG, pins={"x0": ROWS, "out": ROWS})
    right(plan, f, LONG)
    assert moved(plan) == [("permute", 128)]


def test_a_row_that_is_appended_does_not_move_the_others():
    def f(cache, new):
        return jnp.sin(jnp.concatenate([cache[1:], new]))

    new = f32(1, 512)
    plan = plan_of(f, LONG, new, pins={"x0": ROWS, "x1": "[{}, {}]", "out": ROWS})
    right(plan, f, LONG, new)
    assert moved(plan) == [("permute", 1)]


def test_whole_arrays_are_joined_on_cut_blocks_without_a_collective():
    def f(x, y):
        return jnp.sin(jnp.concatenate([x, y]))

    plan = plan_of(f, LONG, LONG, pins={"x0": "[{}, {}]", "x1": "[{}, {}]", "out": ROWS})
    right(plan, f, LONG, LONG)
    assert not len(plan.collectives)


def test_explicit_mode_is_told_where_jax_refuses_the_slices_of_a_roll():
    plan = plan_of(lambda x: jnp.sin(jnp.roll(x, 1, axis=0)), LONG, pins={"x0": ROWS, "out": ROWS})
    explicit = plan.explicit_mode()
    assert [(note.op, note.how) for note in explicit.annotations] == [("roll", "auto_axes")]
    assert explicit.report is not None and "1 kept, 0 changed" in str(explicit.report)


def kinds(f, *args):
    return [op.kind for op in trace(f, *args).program.body.ops]


def test_two_runs_of_one_array_that_change_places_are_one_op():
    assert kinds(lambda x: jnp.concatenate([x[5:], x[:5]]), X) == ["roll"]
    assert kinds(lambda x: jnp.roll(x, (1, 2), (0, 1)), X) == ["roll", "roll"]


def test_the_gradient_of_a_roll_is_a_roll():
    gradient = kinds(jax.grad(lambda x: (jnp.roll(x, 1, 0) * jnp.sin(x)).sum()), X)
    assert gradient.count("roll") == 2
    assert not {"pad", "split", "slice", "concatenate"} & set(gradient)


def test_runs_that_are_wanted_besides_stay():
    def f(x):
        tail = x[5:]
        return jnp.concatenate([tail, x[:5]]), jnp.sin(tail)

    assert kinds(f, X) == ["slice", "roll", "sin"]


NO_ROLLS = {
    "in their order": lambda x: jnp.concatenate([x[:5], x[5:]]),
    "with a gap": lambda x: jnp.concatenate([x[6:], x[:5]]),
    "of two arrays": lambda x: jnp.concatenate([x[5:], jnp.sin(x)[:5]]),
    "along another dimension": lambda x: jnp.concatenate([x[32:], x[:32]], 1),
    "every second element": lambda x: jnp.concatenate([x[32:], x[:64:2]]),
    "of two dimensions": lambda x: jnp.concatenate([x[5:, 1:], x[:5, 1:]]),
    "of the same side": lambda x: jnp.concatenate([x[32:], x[32:]]),
    "filled with ones": lambda x: (
        jnp.pad(x[5:], ((0, 5), (0, 0)), constant_values=1) + jnp.pad(x[:5], ((59, 0), (0, 0)), constant_values=1)
    ),
    "that overlap": lambda x: jnp.pad(x[5:], ((0, 5), (0, 0))) + jnp.pad(x[:5], ((58, 1), (0, 0))),
}


@pytest.mark.parametrize("what", NO_ROLLS)
def test_other_runs_are_no_roll(what):
    assert "roll" not in kinds(NO_ROLLS[what], X)


CORRUPTIONS = {
    "another start": lambda c, p: c.__setitem__(5, 3),
    "no start": lambda c, p: c.__setitem__(5, 0),
    "no roll": lambda c, p: c.__setitem__(8, False),
    "a sum": lambda c, p: c.__setitem__(7, True),
}


@pytest.mark.parametrize("what", CORRUPTIONS)
def test_wrong_rolls_in_a_plan_are_caught(what):
    plan = plan_of(lambda x: jnp.sin(jnp.roll(x, 1, axis=0)), LONG, pins={"x0": ROWS, "out": ROWS})
    data = json.loads(json.dumps(plan.to_dict()))
    assert check_plan(data).findings == ()
    op = next(o for o in data["program"]["body"]["ops"] if o["kind"] == "roll")
    (cutout,) = op["rule"]["cutouts"]
    CORRUPTIONS[what](cutout, data["schedule"]["placements"][str(op["id"])])
    assert check_plan(data).findings


JOINED = {
    "another start": lambda c: c[1].__setitem__(5, -5),
    "a run less": lambda c: c.pop(),
    "a slice": lambda c: c[1].__setitem__(6, False),
    "the other operand": lambda c: c[1].__setitem__(0, 0),
}


@pytest.mark.parametrize("what", JOINED)
def test_wrong_joins_in_a_plan_are_caught(what):
    plan = plan_of(lambda x: jnp.sin(jnp.concatenate([x, x])), LONG, pins={"x0": ROWS, "out": ROWS})
    data = json.loads(json.dumps(plan.to_dict()))
    assert check_plan(data).findings == ()
    op = next(o for o in data["program"]["body"]["ops"] if o["kind"] == "concatenate")
    JOINED[what](op["rule"]["cutouts"])
    assert check_plan(data).findings


def test_a_batched_roll_is_verified_and_read_back_from_its_file(tmp_path):
    rows, by = f32(16, 24), jnp.arange(16) - 8  # batching leaves a number of numpy in the joins of a roll

    def rolled(rows, by):
        return jax.vmap(jnp.roll)(rows, by)

    asked = {"mesh": {"x": 4, "y": 2}, "hardware": "tpu_v5e"}
    plan = autoshard.plan(rolled, rows, by, **asked)
    assert plan.verify(rolled, rows, by, **asked).ok
    plan.save(tmp_path / "plan.json")
    assert autoshard.Plan.load(tmp_path / "plan.json").attach(rolled, rows, by).program == plan.program
