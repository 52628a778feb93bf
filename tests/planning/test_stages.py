"""Priorities: stage after stage, later ones only extend, each with its cost, bound and price (S0.42 to S0.52)."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from plan_cases import f32, mlp

from autoshard import Barrier, InputError, Pin, plan
from autoshard.api.plans import Plan
from autoshard.planning.relaxed import relaxed_note
from autoshard.verify import check_plan

AXES = {"x": 2, "y": 4}
MLP = (f32(64, 64), f32(64, 64), f32(512, 64))


def planned(f: Any, *specs: Any, mesh: dict[str, int] | None = None, **options: Any) -> Plan:
    found = plan(f, *specs, mesh=mesh or AXES, hardware="tpu_v5e", **options)
    checked = check_plan(found.to_dict())
    assert checked.ok, checked.findings
    return found


def step(state: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.square(jnp.tanh(x @ w["w1"]) @ w["w2"]).sum()

    grads = jax.grad(loss)(state["w"])
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
    return {"w": jax.tree.map(lambda w, m: w - 0.1 * m, state["w"], moments), "m": moments}


STATE = {"w1": f32(64, 128), "w2": f32(128, 64)}
STEP = ({"w": STATE, "m": STATE}, f32(32, 64))
THREE_ROUNDS = [
    Pin("x", '[{"d", ?}, {?}]', priority=0),
    Pin("state/w/w1", '[{?}, {"t", ?}]', priority=1),
    Pin("state/m/w1", '[{"d", ?}, {?}]', priority=2),
]


def test_batch_then_megatron_then_zero_as_three_stages() -> None:  # S2.5
    found = planned(step, *STEP, mesh={"d": 2, "t": 2}, constraints=THREE_ROUNDS, donate_argnums=(0,))
    assert [s.priority for s in found.stages] == [0, 1, 2]
    assert [s.axes for s in found.stages] == [("d",), ("t",), ("d",)]
    costs = [s.cost_s for s in found.stages]
    assert costs == sorted(costs)
    assert found.objective_s == costs[-1]
    assert all(s.bound_s <= s.cost_s for s in found.stages)
    assert found.joint is not None and found.joint.cost_s <= found.objective_s
    assert found.joint.price_of_stages_s == pytest.approx(found.objective_s - found.joint.cost_s)
    assert '"d"' in found["x"] and '"t"' in found["state/w/w1"] and '"d"' in found["state/m/w1"]


def test_what_a_stage_placed_stays_in_all_later_ones() -> None:
    found = planned(step, *STEP, mesh={"d": 2, "t": 2}, constraints=THREE_ROUNDS)
    names = found.schedule.mesh.names
    for stage in found.stages:
        for op, factors in stage.placed["ops"].items():
            now = [[names[a] for a in atoms] for atoms in found.schedule.placements[int(op)].factors]
            assert all(set(early) <= set(late) for early, late in zip(factors, now, strict=True))
    assert found.stages[0].placed["ops"], "the batch axis runs through the ops"


def test_the_batch_is_spread_over_ops_and_not_resharded_behind_the_pin() -> None:
    """Cost alone would take the pinned form apart at once; propagation makes it a placement of ops."""
    found = planned(mlp, *MLP, constraints=[Pin("x", '[{"x", ?}, {?}]'), Pin("w1", '[{?}, {"y", ?}]', priority=1)])
    ops = found.program.ops
    atoms = set(found.schedule.mesh.atoms_of["x"])
    rows = [op.id for op in ops.values() if op.rule is not None and op.kind in ("dot_general", "tanh")]
    assert all(any(atoms & set(f) for f in found.schedule.placements[op].factors) for op in rows)


def test_equal_priorities_are_none() -> None:  # S0.51
    pins = [Pin("x", '[{"x"}, {}]'), Pin("w1", '[{}, {"y"}]')]
    none = planned(mlp, *MLP, constraints=pins)
    same = planned(mlp, *MLP, constraints=[Pin(p.pattern, p.sharding, priority=3) for p in pins])
    assert none.schedule == same.schedule
    assert none.objective_s == same.objective_s


def test_gaps_between_priorities_do_not_count() -> None:  # S0.45
    def with_levels(low: int, high: int) -> Plan:
        pins = [Pin("x", '[{"x", ?}, {?}]', priority=low), Pin("w1", '[{?}, {"y", ?}]', priority=high)]
        return planned(mlp, *MLP, constraints=pins)

    one, other = with_levels(0, 1), with_levels(2, 7)
    assert one.schedule == other.schedule
    assert [s.cost_s for s in one.stages] == [s.cost_s for s in other.stages]


def test_priorities_stand_at_dimensions_too() -> None:  # S0.42, S0.43
    found = planned(mlp, *MLP, constraints=[Pin("x", '[{"x", ?}, {"y", ?}p1]')])
    assert [s.axes for s in found.stages] == [("x",), ("y",)]
    assert found["x"] == '[{"x"}, {"y"}]'


def test_a_partial_sum_that_a_later_priority_states_may_be_there_in_earlier_stages() -> None:
    """Otherwise the first stage would place what such plans do not have, and cost more than any of them."""

    def product(w1: Any, w2: Any, x: Any) -> Any:
        return jnp.tanh(checkpoint_name(x @ w1, "h") @ w2)

    pins = [Pin("x", '[{?}, {"y"}]'), Pin("@h", '[{"x"}p0, {?}] unreduced={"y"}', priority=1)]
    specs = (f32(64, 128), f32(128, 64), f32(256, 64))
    found = planned(product, *specs, mesh={"x": 2, "y": 2}, constraints=pins)
    assert found.joint is not None and found.joint.price_of_stages_s == pytest.approx(0.0, abs=1e-12)


def test_a_later_statement_is_not_overwritten_by_an_earlier_stage() -> None:  # S0.48
    pins = [Pin("x", '[{"x", ?}, {?}]'), Pin("out", '[{"y", ?}, {?}]', priority=1), Pin("w2", "[{}, {}]", priority=2)]
    found = planned(mlp, *MLP, constraints=pins)
    assert found["out"].startswith('[{"y"')
    assert found["w2"] == "[{}, {}]"


def test_a_barrier_keeps_hints_from_spreading() -> None:
    def f(x: Any, w: Any) -> Any:
        return checkpoint_name(jnp.tanh(x), "h") @ w

    specs = (f32(64, 64), f32(64, 64))
    pins = [Pin("x", '[{"x", ?}, {?}]'), Pin("w", '[{?}, {"y", ?}]', priority=1)]

    def given(*extra: Any) -> set[str]:
        found = planned(f, *specs, constraints=[*pins, *extra])
        from autoshard.api.verbs import ask
        from autoshard.planning import stated_stages

        first = stated_stages(ask(found.program, mesh=AXES, hardware="tpu_v5e", constraints=[*pins, *extra]).problem)[0]
        return {found.program.ops[op].kind for op in first.given.ops}

    assert given() == {"tanh", "dot_general"}
    assert given(Barrier("@h", "forward")) == {"tanh"}
    assert given(Barrier("@h", "backward")) == {"tanh", "dot_general"}


ROLES = {"x": ("batch", "embed"), "state/*/w1": ("embed", "mlp"), "state/*/w2": ("mlp", "embed")}


def test_stages_by_the_names_of_strategies() -> None:  # S2.5
    names = ["data", "tensor", "zero1"]
    found = planned(step, *STEP, mesh={"data": 2, "model": 2}, priorities=names, roles=ROLES, donate_argnums=(0,))
    assert [s.name for s in found.stages] == names
    assert [s.axes for s in found.stages][:2] == [("data",), ("model",)]
    assert found["x"] == '[{"data"}, {}]'
    assert '"model"' in found["state/w/w1"] and '"model"' in found["state/w/w2"]
    costs = [s.cost_s for s in found.stages]
    assert costs == sorted(costs)


def test_stages_by_rules_of_ones_own() -> None:
    rules = [{"name": "rows", "rules": {"batch": ["x"]}}, {"name": "columns", "rules": {"mlp": ["y"]}}]
    found = planned(step, *STEP, priorities=rules, roles=ROLES)
    assert [(s.name, s.axes) for s in found.stages] == [("rows", ("x",)), ("columns", ("y",))]
    assert '"x"' in found["x"] and '"y"' in found["state/w/w1"]


def test_a_rule_about_a_logical_axis_that_no_input_has_is_refused() -> None:
    """As in a baseline: it placed nothing, and said nothing of it."""
    rules = [{"name": "rows", "rules": {"bach": ["x"]}}]
    with pytest.raises(InputError, match="'rows': no input has the logical axis 'bach'; known are "):
        planned(step, *STEP, priorities=rules, roles=ROLES)


def test_the_checker_finds_stages_that_do_not_add_up() -> None:
    found = planned(step, *STEP, mesh={"d": 2, "t": 2}, constraints=THREE_ROUNDS)

    def findings(change: Any) -> str:
        data = found.to_dict()
        change(data["stages"])
        return "\n".join(str(f) for f in check_plan(data).findings)

    assert "less than the stage before" in findings(lambda s: s[0].update(cost_s=10 * s[0]["cost_s"]))
    assert "above its cost" in findings(lambda s: s[0].update(bound_s=2 * s[0]["cost_s"]))
    assert "the plan costs" in findings(lambda s: s[-1].update(cost_s=1.5 * s[-1]["cost_s"]))

    def move(stages: Any) -> None:
        op = next(iter(stages[0]["placed"]["ops"]))
        stages[0]["placed"]["ops"][op] = [["t", "d"] for _ in stages[0]["placed"]["ops"][op]]

    assert "stage 0 placed t, d on" in findings(move)


def test_a_memory_limit_holds_in_every_stage() -> None:
    free = planned(step, *STEP, mesh={"d": 2, "t": 2}, constraints=THREE_ROUNDS)
    limit = int(0.9 * free.memory.peak_bytes)
    found = planned(step, *STEP, mesh={"d": 2, "t": 2}, constraints=THREE_ROUNDS, memory_limit=limit, effort=0.1)
    assert all(s.peak_bytes <= limit for s in found.stages)


def sgd(params: Any, x: Any, y: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.mean(jnp.square(jax.nn.relu(x @ w["w1"]) @ w["w2"] - y))

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


SGD = ({"w1": f32(1024, 4096), "w2": f32(4096, 1024)}, f32(16384, 1024), f32(16384, 1024))
ROWS_COLUMNS_ROWS = [
    Pin("x", '[{"data", ?}, {?}]'),
    Pin("params/w1", '[{?}, {"model", ?}]', priority=1),
    Pin("params/w2", '[{"data", ?}, {?}]', priority=2),
]


@functools.cache  # a minute each
def sgd_within(limit: int | None) -> Plan:
    mesh = {"data": 2, "model": 4}
    return planned(sgd, *SGD, mesh=mesh, constraints=ROWS_COLUMNS_ROWS, memory_limit=limit, donate_argnums=(0,))


def test_what_does_not_fit_the_memory_limit_is_told_with_its_price() -> None:
    free, tight = sgd_within(None), sgd_within(90 * 2**20)
    assert not any(stage.relaxed for stage in free.stages)
    assert tight.objective_s < free.objective_s, "less is kept"
    relaxed = tight.stages[1].relaxed
    assert relaxed and all(entry["source"] == "propagated" and entry["why"] == "memory" for entry in relaxed)
    assert {tuple(entry["axes"]) for entry in relaxed} == {("model",)}
    priced = [entry for entry in relaxed if entry["price_s"] is not None]
    assert priced and all(entry["price_s"] > 0 and entry["peak_bytes"] > 90 * 2**20 for entry in priced)
    assert tight.stages[1].unlimited["cost_s"] == pytest.approx(free.stages[1].cost_s, rel=0.01)
    assert any(note.startswith("priority 1: ") and "could not be kept" in note for note in tight.notes)


def test_what_an_optimum_chose_and_could_not_keep_is_told_in_a_note() -> None:
    found = planned(
        lambda x, w1, w2: jnp.tanh(x @ w1) @ w2, f32(256, 128), f32(128, 512), f32(512, 128), mesh={"x": 2, "y": 2},
        constraints=[Pin("x", '[{"x", ?}, {?}]'), Pin("out", '[{?}, {"x", ?}]', priority=1)],
    )  # fmt: skip
    assert {entry["source"] for entry in found.stages[0].relaxed} == {"chosen"}
    told = "1 placement that its optimum chose could not be kept (`relaxed`): other statements forbid: x on out"
    assert f"priority 0: {told}" in found.notes
    assert "that its optimum chose could not be kept" in " ".join(found.summary(width=1000).split())


def test_a_note_tells_what_was_propagated_before_what_was_chosen() -> None:
    entry = {"keys": ["0"], "axes": ["x"], "why": "statements", "proved": True}
    lost = [{**entry, "source": "chosen", "name": "a"}, {**entry, "source": "propagated", "name": "b"}]
    assert relaxed_note("priority 0", lost, None, None) == (
        "priority 0: 1 placement that follows from its statements could not be kept (`relaxed`): other statements "
        "forbid: x on b; 1 placement that its optimum chose could not be kept (`relaxed`): other statements forbid: "
        "x on a"
    )


def test_what_was_not_kept_is_told_once() -> None:
    tight = sgd_within(90 * 2**20)
    told = [(e["what"], tuple(e["keys"]), e["on"], tuple(e["axes"])) for s in tight.stages for e in s.relaxed]
    assert len(told) == len(set(told))


def test_within_limits_that_leave_room_everything_is_kept() -> None:
    assert not any(stage.relaxed for stage in sgd_within(120 * 2**20).stages)


def test_stages_cost_more_and_more_under_limits_too() -> None:
    for mebibytes in (120, 100, 90):
        stages = sgd_within(mebibytes * 2**20).stages
        assert all(stage.price_s >= 0 for stage in stages)
        assert [s.cost_s for s in stages] == sorted(s.cost_s for s in stages)


def test_a_stage_places_nothing_that_leaves_a_later_statement_no_room() -> None:
    """Its optimum would cut the rows of w by x, where priority 1 says y."""
    pins = [Pin("x", '[{"x", ?}, {?}]'), Pin("w1", '[{"y"}, {}]', priority=1), Pin("w2", "[{}, {}]", priority=2)]
    found = planned(mlp, *MLP, constraints=pins)
    assert found["w1"] == '[{"y"}, {}]' and found["w2"] == "[{}, {}]"
    for entry in (e for stage in found.stages for e in stage.relaxed):
        assert entry["why"] in ("statements", "placements") and entry["proved"] and entry["price_s"] is None


def test_the_checker_finds_a_placement_that_is_said_to_be_given_up_and_is_there() -> None:
    found = sgd_within(90 * 2**20).to_dict()
    placed = next(cut for cut in found["stages"][0]["placed"]["ops"].items() if any(cut[1]))
    on = next(k for k, axes in enumerate(placed[1]) if axes)
    entry = found["stages"][1]["relaxed"][0]
    entry.update(what="ops", keys=[placed[0]], on=on, axes=placed[1][on])
    assert any("could not be kept; it is there" in str(f) for f in check_plan(found).findings)


def test_stages_by_name_are_decided_again_from_the_plan_file(tmp_path: Path) -> None:
    names = ["data", "tensor"]
    found = planned(step, *STEP, mesh={"data": 2, "model": 2}, priorities=names, roles=ROLES, donate_argnums=(0,))
    file = tmp_path / "plan.json"
    found.save(file)
    again = Plan.load(file)
    assert again.to_dict() == found.to_dict()
    same = again.instead("x", found["x"])
    assert abs(same.extra_s) <= 2 * found.rounding_s
    other = again.instead("x", '[{}, {"data"}]')
    stated = [Pin("x", '[{}, {"data"}]')]
    fresh = planned(
        step,
        *STEP,
        mesh={"data": 2, "model": 2},
        priorities=names,
        roles=ROLES,
        donate_argnums=(0,),
        constraints=stated,
    )
    assert [s.name for s in other.other.stages] == names
    assert other.other.objective_s == pytest.approx(fresh.objective_s, rel=1e-9)
    checked = check_plan(other.other.to_dict())
    assert checked.ok, checked.findings


def test_a_stage_fixes_the_parts_that_its_statements_name_as_it_fixes_axes() -> None:
    specs = (f32(64, 128), f32(128, 64), f32(256, 64))

    def stages(mesh: dict[str, int], first: str, second: str) -> list[float]:
        pins = [Pin("w1", first), Pin("x", second, priority=1)]
        return [s.cost_s for s in plan(mlp, *specs, mesh=mesh, hardware="h100", constraints=pins).stages]

    axes = stages({"a": 2, "b": 4}, '[{"b"}, {?}]', '[{}, {"b", "a", ?}]')
    parts = stages({"ab": 8}, '[{"ab":(2)4}, {?}]', '[{}, {"ab":(2)4, "ab":(1)2, ?}]')
    assert parts == pytest.approx(axes)
