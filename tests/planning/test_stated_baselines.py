"""Shardings in the code as hints or not at all, and PartitionSpecs of one's own priced as a baseline."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from plan_cases import f32

import autoshard
from autoshard import InputError, Pin, ShardingError

ASKED = {"mesh": {"data": 2, "model": 4}, "hardware": "tpu_v5e"}
MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


WEIGHTS, X = {"w1": f32(512, 2048), "w2": f32(2048, 512)}, f32(256, 512)


def layer(w, x):
    return jnp.tanh(x @ w["w1"]) @ w["w2"]


def constrained(w, x):
    """Rows on `model`, which is not what is cheapest."""
    hidden = jax.lax.with_sharding_constraint(jnp.tanh(x @ w["w1"]), NamedSharding(MESH, P("model", None)))
    return hidden @ w["w2"]


def hidden_of(plan):
    (op,) = [op for op, _ in plan.program.walk() if op.kind == "sharding_constraint"]
    return plan[plan.program.values[op.results[0]].name]


# -- shardings in the code -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plans():
    found = {}
    for mode in ("hard", "hints", "ignore"):
        found[mode] = autoshard.plan(constrained, WEIGHTS, X, in_code=mode, **ASKED)
    return found


def test_shardings_in_the_code_are_hard_where_nothing_is_said(plans):
    plan = autoshard.plan(constrained, WEIGHTS, X, **ASKED)
    assert hidden_of(plan) == '[{"model"}, {}]' and plan.objective_s == plans["hard"].objective_s


def test_hints_are_priced_and_the_plan_is_never_dearer(plans):
    plan = plans["hints"]
    (priced,) = plan.baselines
    assert priced.name == "in code" and priced.objective_s is not None
    # as a statement it leaves the other ops where they are cheapest, as a baseline they run where it brings them
    assert plan.objective_s < plans["hard"].objective_s <= priced.objective_s
    assert not plan.statements and any(n.startswith("in_code='hints': 1 shardings in the code") for n in plan.notes)


def test_what_is_ignored_is_told_and_costs_nothing(plans):
    plan = plans["ignore"]
    assert plan.objective_s == pytest.approx(plans["hints"].objective_s) and not plan.baselines
    assert any("1 shardings in the code are ignored" in note for note in plan.notes)


@pytest.mark.parametrize("mode", ["hints", "ignore"])
def test_plans_in_both_ways_verify_and_survive_their_files(plans, mode, tmp_path):
    plans[mode].save(tmp_path / "plan.json")
    plan = autoshard.Plan.load(tmp_path / "plan.json").attach(constrained, WEIGHTS, X)
    assert plan.verify(constrained, WEIGHTS, X, in_code=mode, **ASKED).ok
    told = plan.verify(constrained, WEIGHTS, X, **ASKED)
    assert not told.ok and "asked: in_code='hard'; found in the plan: in_code=" in str(told)


def test_meshes_and_axes_that_the_plan_has_not_are_errors_unless_they_are_ignored():
    def f(x):
        mesh = AbstractMesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
        return jax.lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P("a")))

    for mode in ("hard", "hints"):
        with pytest.raises(autoshard.UnsupportedError, match="'a'"):
            autoshard.plan(f, X, in_code=mode, **ASKED)
    assert autoshard.plan(f, X, in_code="ignore", **ASKED).status == "optimal"


def test_another_word_is_refused():
    with pytest.raises(InputError, match="in_code is 'soft'; shardings in the code are 'hard'"):
        autoshard.plan(constrained, WEIGHTS, X, in_code="soft", **ASKED)


# -- shardings of one's own ------------------------------------------------------------------------------------

MEGATRON = ({"w1": P(None, "model"), "w2": P("model", None)}, P("data", None))


def test_partition_specs_are_priced_as_a_plan_with_these_pins_is():
    mine = {"name": "mine", "in_shardings": MEGATRON, "out_shardings": P("data", None)}
    plan = autoshard.plan(layer, WEIGHTS, X, baselines=[mine], **ASKED)
    (priced,) = plan.baselines
    pins = [
        Pin("w/w1", '[{}, {"model"}]'),
        Pin("w/w2", '[{"model"}, {}]'),
        Pin("x", '[{"data"}, {}]'),
        Pin("out", '[{"data"}, {}]'),
    ]
    pinned = autoshard.plan(layer, WEIGHTS, X, constraints=pins, **ASKED)
    assert priced.objective_s is not None and priced.objective_s == pytest.approx(pinned.objective_s, rel=1e-6)
    assert plan.objective_s <= priced.objective_s and priced.name == "mine" and "mine" in plan.summary()


def test_prefixes_none_and_named_shardings_are_taken_as_jit_takes_them():
    mine = {"name": "mine", "in_shardings": (None, NamedSharding(MESH, P("data")))}
    whole = {"name": "whole", "in_shardings": P()}
    plan = autoshard.plan(layer, WEIGHTS, X, baselines=[mine, whole], **ASKED)
    by_name = {b.name: b.objective_s for b in plan.baselines}
    assert by_name["mine"] is not None
    # nothing is cut, so every device does all the work: 2 products of 256 x 512 x 2048 elements
    assert by_name["whole"] > plan.machine.compute_s(2 * 2 * 256 * 512 * 2048, 0, "float32")


def test_the_shardings_of_another_plan_can_be_priced():
    other = autoshard.plan(layer, WEIGHTS, X, constraints=[Pin("x", '[{"model"}, {}]')], **ASKED)
    mine = {"name": "other", "in_shardings": other.in_shardings, "out_shardings": other.out_shardings}
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    plan = autoshard.plan(layer, WEIGHTS, X, baselines=[mine], mesh=mesh, hardware="tpu_v5e")
    assert plan.baselines[0].objective_s == pytest.approx(other.objective_s, rel=1e-6)


def test_what_cannot_be_beside_carried_state_says_so():
    def step(w, x):
        return jax.tree.map(lambda a: a * 0.9, w), layer(w, x).sum()

    mine = {"name": "zero", "in_shardings": (P(), None), "out_shardings": ({"w1": P("data"), "w2": P()}, None)}
    plan = autoshard.plan(step, WEIGHTS, X, baselines=[mine], **ASKED)
    assert plan.baselines[0].objective_s is None
    assert "out/0/w1 cannot be" in plan.baselines[0].reason and "carry=False" in plan.baselines[0].reason
    free = autoshard.plan(step, WEIGHTS, X, baselines=[mine], carry=False, **ASKED)
    assert free.baselines[0].objective_s is not None


def test_shardings_of_arguments_are_priced_together_with_those_in_the_code():
    ours = {"name": "both", "in_shardings": ({"w1": P("model"), "w2": P("model")}, P("data")), "in_code": True}
    apart = {**ours, "name": "without", "in_code": False}
    plan = autoshard.plan(constrained, WEIGHTS, X, baselines=[ours, apart], in_code="ignore", **ASKED)
    both, without = (b.objective_s for b in plan.baselines)
    pins = [
        Pin("w/w1", '[{"model"}, {}]'),
        Pin("w/w2", '[{"model"}, {}]'),
        Pin("x", '[{"data"}, {}]'),
    ]
    pinned = autoshard.plan(constrained, WEIGHTS, X, constraints=pins, in_code="hard", **ASKED)
    # what is stated in the code moves rows to another axis and back, which nothing else asks for
    assert both is not None and without is not None and pinned.objective_s <= both and without < both


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"in_shardings": (None, P("rows"))}, ShardingError, "baseline mine: in_shardings: .*rows"),
        ({"in_shardings": (None, P("data", None, "model"))}, ShardingError, "3 entries but the tensor has rank 2"),
        ({"in_shardings": ({"w1": P()}, None)}, InputError, "baseline mine: in_shardings: the tree does not fit"),
        ({"in_shardings": (None, 3)}, InputError, "leaves are PartitionSpecs, NamedShardings or None, found 3"),
        ({"in_shardings": None, "rules": {}}, InputError, "found the key 'rules'"),
        ({"in_shardings": None, "name": ""}, InputError, "found the name ''"),
        ({"in_code": "hints"}, InputError, "found in_code 'hints'"),
    ],
)
def test_what_does_not_fit_is_an_error(given, error, message):
    with pytest.raises(error, match=message):
        autoshard.plan(layer, WEIGHTS, X, baselines=[{"name": "mine", **given}], **ASKED)
