"""``instead``: another sharding of a value, solved with everything else open, told with what changes and a proof."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from autoshard import InfeasibleError, InputError, Pin, SameSharding, ShardingError, plan
from autoshard.api.bound import check_bound
from autoshard.api.plans import Plan
from autoshard.cli import main
from autoshard.questions.again import solve_again
from autoshard.questions.break_even import break_even
from autoshard.questions.instead import instead
from autoshard.verify import Asked, Status, check_plan
from autoshard.verify.derived import check_derived

SPEC = jax.ShapeDtypeStruct
PARAMS = {"w1": SPEC((64, 128), jnp.float32), "w2": SPEC((128, 64), jnp.float32)}
X = SPEC((32, 64), jnp.float32)
MESH = {"x": 2, "y": 4}


def f(params: dict[str, Any], x: Any) -> Any:
    return checkpoint_name(jnp.tanh(x @ params["w1"]), "hidden") @ params["w2"]


def planned(*constraints: Pin | SameSharding, **options: Any) -> Plan:
    return plan(f, PARAMS, X, mesh=MESH, hardware="tpu_v5e", constraints=constraints, **options)


@pytest.fixture(scope="module")
def free() -> Plan:
    return planned(Pin("out", "[{}, {}]", source="here:1"))


@pytest.mark.parametrize(
    ("value", "sharding"),
    [("params/w1", '[{"x"}, {"y"}]'), ("x", '[{"x", "y"}, {}]'), ("@hidden", '[{}, {"x", "y"}]'), ("out", "[{}, {?}]")],
)
def test_the_other_plan_costs_what_planning_with_that_pin_costs(free: Plan, value: str, sharding: str) -> None:
    told = instead(free, value, sharding)
    pinned = planned(Pin("out", "[{}, {}]"), Pin(value, sharding))
    assert told.other.objective_s == pytest.approx(pinned.objective_s, rel=1e-9)
    assert told.extra_s == pytest.approx(pinned.objective_s - free.objective_s, abs=1e-15)
    assert told.least_extra_s <= told.extra_s + told.other.rounding_s


def test_the_sharding_that_the_plan_has_costs_nothing_more(free: Plan) -> None:
    for value in ("params/w1", "params/w2", "x", "@hidden"):
        told = instead(free, value, free.explain(value)[0].sharding)
        assert abs(told.extra_s) <= told.other.rounding_s + free.rounding_s
        assert "costs the same" in str(told)


def test_a_statement_that_says_otherwise_gives_way_and_is_named(free: Plan) -> None:
    told = instead(free, "out", '[{"x"}, {}]')
    assert told.replaced == ("here:1: pin out [{}, {}]",)
    assert told.other["out"] == '[{"x"}, {}]'
    assert "in place of here:1: pin out" in str(told)


def test_other_values_of_the_displaced_statement_keep_it() -> None:
    both = planned(Pin("params/*", "[{}, {}]"))
    told = instead(both, "params/w1", '[{"x"}, {}]')
    assert (told.other["params/w1"], told.other["params/w2"]) == ('[{"x"}, {}]', "[{}, {}]")


def test_groups_and_the_memory_limit_still_hold() -> None:
    grouped = plan(
        f, {"w1": SPEC((64, 64), jnp.float32), "w2": SPEC((64, 64), jnp.float32)}, SPEC((64, 64), jnp.float32),
        mesh=MESH, hardware="tpu_v5e", constraints=[SameSharding(["params/w1", "params/w2"])],
    )  # fmt: skip
    told = instead(grouped, "params/w1", '[{"y"}, {}]')
    assert told.other["params/w2"] == '[{"y"}, {}]'
    free = planned()
    tight = planned(memory_limit=int(free.memory.peak_bytes * 0.9))
    with pytest.raises(InfeasibleError):
        instead(tight, "params/*", '[{}, {}] replicated={"x", "y"}')


def test_layers_that_decide_for_themselves_do_so_in_the_other_plan_too() -> None:
    """Within this limit it pays to cut some of the equal layers only."""

    def layers(params, x):
        for w in params:
            x = x + jax.nn.relu(x @ w["u"]) @ w["d"]
        return x

    params = [{"u": SPEC((16, 64), jnp.float32), "d": SPEC((64, 16), jnp.float32)}] * 2
    free = plan(
        layers, params, SPEC((32, 16), jnp.float32), mesh={"a": 2, "b": 2}, hardware="h100", memory_limit=16_000,
        share_repeats=False, effort=0.2,
    )  # fmt: skip
    assert len({free[f"params/{k}/u"] for k in range(2)}) > 1
    told = instead(free, "params/0/u", free["params/0/u"])
    assert abs(told.extra_s) <= 1e-3 * free.objective_s
    assert told.least_extra_s <= told.other.rounding_s + free.rounding_s


def test_where_it_differs_is_told_by_values_ops_and_collectives(free: Plan) -> None:
    told = instead(free, "params/w1", '[{"x"}, {"y"}]')
    assert {s.name for s in told.diff.shardings} >= {"params/w1"}
    moved = sum(c.seconds_b - c.seconds_a for c in told.diff.collectives)
    assert moved == pytest.approx(told.other.cost.communication_s - free.cost.communication_s, abs=1e-15)
    assert told.to_dict()["changes"]["cost"]["step_s"]["b"] == told.other.cost.step_s


def test_sub_axes_that_the_plan_did_not_have_may_be_asked_for(free: Plan) -> None:
    told = instead(free, "params/w2", '[{"y":(1)2}, {}]')
    assert told.other["params/w2"] == '[{"y":(1)2}, {}]'
    assert told.extra_s >= -free.rounding_s - told.other.rounding_s


@pytest.mark.parametrize(
    ("value", "sharding", "error", "message"),
    [
        ("params/w3", "[{}, {}]", InputError, "did you mean params/w"),
        ("params/w1", "[{}]", ShardingError, "it has 1 dimensions"),
        ("params/w1", '[{"z"}, {}]', ShardingError, '"z"'),
        ("params/w1", "nonsense", ShardingError, "cannot read sharding"),
        ("params/w1", '[{"x"}p1, {}]', InputError, "priorities"),
    ],
)
def test_bad_questions_are_refused(free: Plan, value: str, sharding: str, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        instead(free, value, sharding)


def test_solving_again_gives_the_plan_again(free: Plan) -> None:
    again = solve_again(free)
    assert again.diff(free).same
    assert again.objective_s == free.objective_s


def test_the_command_tells_the_same_and_is_deterministic(
    free: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "plan.json")
    free.save(file)
    asked = ["explain", file, "params/w1", "--instead", '[{"x"}, {"y"}]']
    assert main([*asked, "--json"]) == 0
    first = capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    assert capsys.readouterr().out == first
    told = json.loads(first)
    assert told["extra_s"] == pytest.approx(instead(free, "params/w1", '[{"x"}, {"y"}]').extra_s)
    assert told["other"]["bound_s"] <= told["other"]["objective_s"]
    assert main(asked) == 0
    assert "instead of" in capsys.readouterr().out
    assert main(["explain", file, "params/w1", "--instead", "[{]"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("strategy", ["basic:biggest-tensor", "greedy", "user-priority", "staged:first-factor"])
def test_plans_by_a_strategy_are_answered_in_kind(strategy: str, tmp_path: Path) -> None:
    stated = [Pin("x", '[{"x", ?}, {?}]'), Pin("params/w1", '[{?}, {"y", ?}]', priority=1)]
    planned(*stated, strategy=strategy).save(tmp_path / "plan.json")
    found = Plan.load(tmp_path / "plan.json")
    assert found.strategy == strategy
    own = instead(found, "params/w2", found["params/w2"])
    assert own.other.objective_s == pytest.approx(found.objective_s, rel=1e-12)
    other = instead(found, "params/w2", '[{}, {"x"}]')
    again = planned(*stated, Pin("params/w2", '[{}, {"x"}]'), strategy=strategy)
    assert other.other.objective_s == pytest.approx(again.objective_s, rel=1e-9)
    assert f"both decided by strategy {strategy}" in str(other) and other.to_dict()["strategy"] == strategy


def test_a_plan_by_cost_names_no_strategy(free: Plan) -> None:
    assert free.strategy is None and "strategy" not in free.to_dict()
    assert "by strategy" not in str(instead(free, "x", '[{"x"}, {}]'))


def test_break_even_of_a_plan_by_a_strategy_is_that_of_the_strategy() -> None:
    found = planned(strategy="greedy")
    told = break_even(found, "params/w1", "bandwidth")
    for flip in told.flips:
        assert flip.sharding != found["params/w1"]


# what the plan that answers a question says of it


def asked_for(*constraints: Pin | SameSharding) -> Asked:
    return Asked(mesh=MESH, hardware="tpu_v5e", constraints=constraints, sharded_arguments=False)


OUT = Pin("out", "[{}, {}]")


def test_the_other_plan_is_what_was_asked_for_with_the_question(free: Plan) -> None:
    other = instead(free, "out", '[{"x"}, {}]').other
    data = json.loads(json.dumps(other.to_dict()))
    found = check_derived(data, asked_for(OUT))
    assert found.status is Status.OK, str(found)
    told = [line.removeprefix("asked beside that, as the plan records it: ") for line in found.lines]
    assert 'question 1: pin out: [{"x"}, {}]' in told
    assert any(line.startswith("question 1: ") and line.endswith("gives way to that") for line in told)
    assert Plan.from_dict(data).to_dict() == other.to_dict()


def test_a_question_to_the_answer_of_another_one_is_recorded_behind_it(free: Plan) -> None:
    other = free.instead("out", '[{"x"}, {}]', effort=0.5).other
    again = other.instead("x", '[{}, {"y"}]').other
    data = json.loads(json.dumps(again.to_dict()))
    assert [len(change["pins"]) for change in data["changed"]] == [1, 1]
    found = check_derived(data, asked_for(OUT))
    assert found.status is Status.OK, str(found)
    assert any("question 1: effort 0.5" in line for line in found.lines)
    assert not any("question 2: effort" in line for line in found.lines)


@pytest.mark.parametrize("what", ["left out", "other sharding", "other values"])
def test_a_question_that_is_recorded_otherwise_is_caught(free: Plan, what: str) -> None:
    data = json.loads(json.dumps(instead(free, "x", '[{}, {"y"}]').other.to_dict()))
    pin = data["changed"][0]["pins"][0]
    if what == "left out":
        del data["changed"]
    elif what == "other sharding":
        pin["sharding"] = '[{}, {"x"}]'
    else:
        pin["values"] = data["statements"][0]["values"]
    assert check_derived(data, asked_for(OUT)).status is Status.FAILED


def test_a_record_of_a_question_that_cannot_be_read_is_told(free: Plan) -> None:
    data = json.loads(json.dumps(instead(free, "x", '[{}, {"y"}]').other.to_dict()))
    del data["changed"][0]["pins"]
    with pytest.raises(InputError, match="what the plan says of changes cannot be read"):
        check_derived(data, asked_for(OUT))


def test_what_the_plan_has_anyway_makes_no_stage() -> None:
    pins = (Pin("x", '[{"x", ?}, {?}]', priority=1), Pin("params/w1", '[{?}, {"y", ?}]', priority=2))
    made = planned(*pins)
    has, other = made.instead("params/w2", made["params/w2"]).other, made.instead("params/w2", "[{}, {}]").other
    for answer, priorities in ((has, [1, 2]), (other, [0, 1, 2])):
        data = json.loads(json.dumps(answer.to_dict()))
        assert [stage["priority"] for stage in data["stages"]] == priorities
        assert [str(f) for f in check_plan(data).findings] == []
        assert check_derived(data, asked_for(*pins)).status is Status.OK
        assert check_bound(data).status is Status.OK


def test_where_the_statement_with_the_only_priority_gives_way_there_are_no_stages() -> None:
    """docs/explain.md: the answer verifies; its pins are of one priority then, as in a plan that is made with them."""
    staged = planned(Pin("out", '[{"x"}, {?}]', priority=2))
    other = staged.instead("out", '[{"y"}, {}]').other
    assert (len(staged.stages), other.stages) == (1, ())
    assert check_plan(json.loads(json.dumps(other.to_dict()))).findings == ()


def faults(answer: Any) -> list[str]:
    return [str(f) for f in check_plan(json.loads(json.dumps(answer.to_dict()))).findings]


def test_an_answer_verifies_where_a_statement_lost_one_of_its_values_to_the_question() -> None:
    told = instead(planned(Pin("params/*", "[{}, {}]")), "params/w1", '[{"x"}, {}]')
    assert faults(told.other) == []


def test_a_statement_that_leaves_out_what_no_question_asked_about_is_caught() -> None:
    data = json.loads(json.dumps(instead(planned(Pin("params/*", "[{}, {}]")), "x", '[{"x"}, {}]').other.to_dict()))
    data["statements"][0]["values"].pop()
    assert any("params/w2, which the statement leaves out" in str(f) for f in check_plan(data).findings)


# shardings of a jax.jit around the planned function


OTHERWISE = [(P("x"), '[{"x"}, {}]'), (P(), "[{}, {}]"), (P(None, ("x", "y")), '[{}, {"x", "y"}]')]


def in_jit(x: P, out: P) -> Any:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    ends = {"in_shardings": (None, NamedSharding(mesh, x)), "out_shardings": NamedSharding(mesh, out)}
    return plan(jax.jit(f, **ends), PARAMS, X, mesh=MESH, hardware="tpu_v5e")


@pytest.mark.parametrize(("x", "text"), OTHERWISE)
def test_an_argument_that_a_jit_shards_costs_what_it_costs_with_that_sharding_there(x: P, text: str) -> None:
    other = instead(in_jit(P("y"), P("y")), "x", text).other
    assert other.objective_s == pytest.approx(in_jit(x, P("y")).objective_s, rel=1e-9)


@pytest.mark.parametrize(("out", "text"), OTHERWISE)
def test_a_result_that_a_jit_shards_costs_what_it_costs_with_that_sharding_there(out: P, text: str) -> None:
    other = instead(in_jit(P("y"), P("y")), "out", text).other
    assert other.objective_s == pytest.approx(in_jit(P("y"), out).objective_s, rel=1e-9)


def test_the_answer_about_what_a_jit_shards_names_what_was_asked_about_alone() -> None:
    assert instead(in_jit(P("y"), P("y")), "x", "[{}, {}]").values == ("x",)


@pytest.mark.parametrize("value", ["x", "out", "sharding_constraint:0"])
def test_the_answer_about_what_a_jit_shards_verifies(value: str) -> None:
    assert faults(instead(in_jit(P("y"), P("y")), value, '[{"x"}, {}]').other) == []


def test_the_order_of_devices_of_an_argument_whose_sharding_gave_way_is_believed_in_a_file() -> None:
    """Without its function a file does not tell what its arguments came with; that failed."""
    turned = Mesh(np.array(jax.devices()[:8])[::-1].reshape(2, 4), ("x", "y"))
    x = SPEC(X.shape, X.dtype, sharding=NamedSharding(turned, P("x")))
    made = plan(f, PARAMS, x, mesh=MESH, hardware="tpu_v5e").instead("x", "[{}, {}]").other
    found = check_derived(json.loads(json.dumps(made.to_dict())), Asked(mesh=MESH, hardware="tpu_v5e"))
    assert found.status is Status.OK, str(found)


def test_carried_state_that_gives_way_to_the_sharding_of_an_output_is_told() -> None:
    """docs/explain.md: a proved optimum that is beaten so was called "not proved to be the best"."""

    def descend(params: dict[str, Any], x: Any) -> Any:
        gradient = jax.grad(lambda p: jnp.square(f(p, x)).mean())(params)
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradient)

    carried = plan(descend, PARAMS, X, mesh=MESH, hardware="tpu_v5e")
    told = carried.instead("out/w1", '[{"y"}, {}]')
    assert (carried.status, carried["params/w1"], told.freed) == ("optimal", "[{}, {}]", ("out/w1",))
    assert "less" in str(told) and "; carried state stood in the way" in str(told)
    assert "out/w1 leaves as" in str(told)


def momentum(state: dict[str, Any], x: Any) -> Any:
    gradient = jax.grad(lambda p: jnp.square(jnp.tanh(x @ p["w1"]) @ p["w2"]).sum())(state["w"])
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], gradient)
    return {"w": jax.tree.map(lambda w, m: w - 0.1 * m, state["w"], moments), "m": moments}


@pytest.mark.parametrize("output", ["out/w/w1", "out/m/w2"])
def test_the_sharding_that_carried_state_has_gives_the_same_plan_in_stages(output: str) -> None:
    """docs/explain.md: an output with a pin of its own left stages before it free to part it from its input."""
    pins = (Pin("x", '[{"x", ?}, {}]'), Pin("state/*/w1", '[{?}, {"y", ?}]', priority=1))
    words = {"mesh": MESH, "hardware": "tpu_v5e", "constraints": pins}
    staged = plan(momentum, {"w": PARAMS, "m": PARAMS}, SPEC((256, 64), jnp.float32), **words)
    told = staged.instead(output, staged[output])
    assert [s.cost_s for s in told.other.stages] == [s.cost_s for s in staged.stages]
    assert (told.freed, faults(told.other)) == ((), [])
    data = json.loads(json.dumps(told.other.to_dict()))
    assert check_derived(data, asked_for(*pins)).status is Status.OK and check_bound(data).status is Status.OK


def test_an_answer_tells_what_a_device_holds_of_an_input_that_it_cuts_unevenly() -> None:
    made = plan(f, {"w1": SPEC((6, 10), jnp.float32), "w2": SPEC((10, 5), jnp.float32)}, SPEC((9, 6), jnp.float32),
                mesh=MESH, hardware="tpu_v5e")  # fmt: skip
    assert any("which JAX cannot store so: x " in note for note in made.instead("x", '[{"x"}, {}]').other.notes)
