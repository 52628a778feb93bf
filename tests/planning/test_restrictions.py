"""Statements that are no sharding of one value hold in plans; the independent checker agrees, and finds where not."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from plan_cases import f32, looped, mlp
from restriction_cases import AXES, MLP, findings_with, planned

from autoshard import AxisOnly, Barrier, MaxReshards, NoCollective, Pin, Replicated, SameSharding, plan
from autoshard.api.plans import Plan
from autoshard.api.verbs import ask
from autoshard.constraints.restrictions.axis_only import MatchedAxisOnly
from autoshard.errors import InfeasibleError, InputError, ShardingError
from autoshard.formulation.assign import assignment_of
from autoshard.frontends.jax.function import trace
from autoshard.planning import build_model, decide
from autoshard.solver.network import evaluate
from autoshard.verify import check_plan


def uses_axis(found: Plan, axis: str) -> set[str]:
    return {name for name, text in found.shardings.items() if f'"{axis}"' in text}


def test_replicated_values_are_not_cut() -> None:
    free = planned(mlp, *MLP)
    assert "{" in free["x"] and free["x"] != "[{}, {}]"
    held = planned(mlp, *MLP, constraints=[Replicated("x")])
    assert held["x"] == "[{}, {}]"
    assert held.objective_s > free.objective_s
    assert any("replicated x is broken" in t for t in findings_with(free, held))


def test_replicated_over_one_axis_leaves_the_others() -> None:
    held = planned(mlp, *MLP, constraints=[Replicated("x", ["x"]), Pin("x", '[{"y", ?}, {?}]')])
    assert held["x"] == '[{"y"}, {}]'


def test_an_axis_is_used_for_the_named_values_only() -> None:
    held = planned(mlp, *MLP, constraints=[AxisOnly("y", ["w1", "w2"]), Pin("w1", '[{"y"}, {}]')])
    assert "w1" in uses_axis(held, "y") <= {"w1", "w2"}
    free = planned(mlp, *MLP)
    assert any("axis y only for" in t for t in findings_with(free, held))


def test_an_axis_for_a_stack_of_layers_reaches_the_slices_of_its_loop() -> None:
    specs = (f32(3, 64, 64), f32(64, 64))
    held = planned(looped, *specs, constraints=[AxisOnly("y", "w"), Pin("w", '[{}, {"y"}, {}]')])
    (stated,) = held.stated_as(MatchedAxisOnly)
    named = {held.program.values[v].type.shape for v in stated.named_values(held.program)}
    assert named == {(3, 64, 64), (64, 64)}
    assert {"w"} == uses_axis(held, "y") & set(held.program.input_names)


def test_a_value_that_has_an_axis_to_itself_may_be_handed_back_and_tagged_so() -> None:
    kept = planned(mlp, *MLP, constraints=[AxisOnly("y", "dot_general"), Pin("out", '[{"y"}, {}]')])
    assert kept["out"] == '[{"y"}, {}]'

    def layers(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, one: (jnp.tanh(c @ checkpoint_name(one, "one")), None), x, w)[0]

    sliced = planned(layers, f32(3, 64, 64), f32(64, 64), constraints=[AxisOnly("y", "w"), Pin("@one", '[{"y"}, {?}]')])
    assert uses_axis(sliced, "y") >= {"scan:0/w"}


def test_no_collective_runs_over_a_barred_axis() -> None:
    pins = [Pin("w1", '[{}, {"y"}]'), Pin("w2", '[{"y"}, {}]')]
    free = planned(mlp, *MLP, constraints=pins)
    assert free.collectives["axes"].str.contains("y").any()
    with pytest.raises(InfeasibleError):
        planned(mlp, *MLP, constraints=[*pins, Pin("out", "[{}, {}]"), Pin("x", "[{}, {}]"), NoCollective("y")])
    held = planned(mlp, *MLP, constraints=[Pin("x", '[{"y"}, {}]'), NoCollective("y")])
    assert not held.collectives["axes"].str.contains("y").any()
    assert any("no collective over y" in t for t in findings_with(free, held))


def test_a_region_without_collectives_leaves_the_rest_alone() -> None:
    def f(a: Any, b: Any, x: Any) -> Any:
        h = checkpoint_name(x @ a, "h")
        return jnp.tanh(h) @ b

    pins = [Pin("a", '[{"x"}, {}]'), Pin("x", '[{}, {"x"}]'), Pin("b", '[{}, {"x"}]'), Pin("out", "[{}, {}]")]
    held = planned(f, f32(64, 64), f32(64, 64), f32(512, 64), constraints=[*pins, NoCollective("x", "@h")])
    assert not any(held.collectives["value"] == "h")
    assert held.collectives["axes"].str.contains("x").any()


def two_products(x: Any, w: Any, v: Any) -> Any:
    return x @ w, x @ v


GATHERED_ONCE = [Pin("x", '[{}, {"y"}]'), *(Pin(name, "[{}, {}]") for name in ("w", "v", "out/0", "out/1"))]
"""Of `two_products`: x is gathered, which is cheapest once for both."""


@pytest.mark.parametrize(
    "stated", [NoCollective("y", "dot_general"), MaxReshards(0, axis="y", pattern="dot_general")], ids=str
)
def test_what_moves_once_for_several_uses_moves_at_each_of_them(stated: Any) -> None:
    specs = (f32(512, 256), f32(256, 1024), f32(256, 1024))
    free = planned(two_products, *specs, constraints=GATHERED_ONCE)
    assert list(free.collectives["where"]) == ["x for all its uses"]
    with pytest.raises(InfeasibleError) as caught:
        planned(two_products, *specs, constraints=[*GATHERED_ONCE, stated])
    assert any(str(stated) in line for line in caught.value.conflict)
    elsewhere = planned(two_products, *specs, constraints=[GATHERED_ONCE[0], replace(stated, pattern="x")])
    assert any("is broken" in text for text in findings_with(free, elsewhere))


def test_an_output_without_collectives_does_not_take_what_moves_for_other_uses_too() -> None:
    """x lies as the output should; gathered for the matmul and the other output, it is not brought back by a slice."""
    pins = [Pin("x", '[{"y"}, {}]'), Pin("out/1", "[{}, {}]"), Pin("out/0", '[{}, {"y"}]')]
    f = lambda x, w: (x, x, x @ w)  # noqa: E731
    free = planned(f, f32(512, 256), f32(256, 64), constraints=pins)
    assert "x for all its uses" in list(free.collectives["where"])
    with pytest.raises(InfeasibleError):
        planned(f, f32(512, 256), f32(256, 64), constraints=[*pins, NoCollective("y", "out/0")])


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_there_are_at_most_so_many_reshards(limit: int) -> None:
    shardings = {"w1": '[{"x"}, {"y"}]', "w2": '[{"y"}, {"x"}]', "x": '[{"y"}, {}]', "out": '[{}, {"y", "x"}]'}
    pins = [Pin(name, text) for name, text in shardings.items()]
    free = planned(mlp, *MLP, constraints=pins)
    assert _reshards(free) > 2
    if limit == 0:
        with pytest.raises(InfeasibleError):
            planned(mlp, *MLP, constraints=[*pins, MaxReshards(0)])
    held = planned(mlp, *MLP, constraints=[*pins[:limit], MaxReshards(limit)])
    assert _reshards(held) <= limit
    assert held.objective_s >= planned(mlp, *MLP, constraints=pins[:limit]).bound_s
    assert any(f"at most {limit} reshards" in t for t in findings_with(free, held))


def test_reshards_of_one_axis_are_counted_for_themselves() -> None:
    pins = [Pin("w1", '[{"x"}, {"y"}]'), Pin("x", '[{"y"}, {}]')]
    held = planned(mlp, *MLP, constraints=[*pins, MaxReshards(1, axis="x")])
    moved = [r for r in (*held.schedule.shared.values(), *held.schedule.uses.values()) if r.steps]
    atoms = held.schedule.mesh.atoms_of["x"]
    assert sum(any(set(s.atoms) & set(atoms) for s in r.steps) for r in moved) <= 1


def _reshards(found: Plan, axis: str | None = None) -> int:
    at = found.schedule
    atoms = None if axis is None else {*at.mesh.atoms_of[axis]}
    return sum(
        any(atoms is None or atoms.intersection(step.atoms) for step in r.steps)
        for r in (*at.shared.values(), *at.uses.values())
    )


def two_gathers(x: Any, y: Any, w: Any) -> Any:
    return jnp.tanh(x) @ w, jnp.tanh(y) @ w


BY_WAY_OF_X = [Pin("x", '[{}, {"y"}]'), Pin("y", '[{}, {"y"}]'), Pin("w", "[{}, {}]"), Pin("out/*", "[{}, {}]")]
"""Of `two_gathers`: both are gathered over y, which is cheapest by way of a slice over x and a gather over both."""


def test_a_reshard_goes_another_way_where_the_cheapest_moves_an_axis_too_often() -> None:
    specs = (f32(512, 256), f32(512, 256), f32(256, 1024))
    free = planned(two_gathers, *specs, constraints=BY_WAY_OF_X, carry=False)
    assert _reshards(free, "x") > 0
    held = [
        planned(two_gathers, *specs, constraints=[*BY_WAY_OF_X, MaxReshards(limit, axis="x")], carry=False)
        for limit in range(3)
    ]
    assert [_reshards(found, "x") for found in held] == [0, 1, 2]
    none, one, two = (found.objective_s for found in held)
    assert free.objective_s <= two < one < none
    assert one == pytest.approx((none + two) / 2, rel=1e-4)


def test_an_axis_for_other_values_is_not_passed_on_the_way_to_an_op() -> None:
    specs = (f32(512, 256), f32(512, 256), f32(256, 1024))
    kept = AxisOnly("x", ["w"])
    free = planned(two_gathers, *specs, constraints=BY_WAY_OF_X, carry=False)
    held = planned(two_gathers, *specs, constraints=[*BY_WAY_OF_X, kept], carry=False)
    assert _reshards(free, "x") > 0 == _reshards(held, "x")
    assert any("axis x only for w is broken: slice over" in text for text in findings_with(free, held))


def test_a_reshard_counts_where_every_way_does() -> None:
    """The input is on one axis and the output on the other, whatever is chosen."""
    pins = [Pin("x", '[{"x"}, {}]'), Pin("out", '[{"y"}, {}]')]
    for limit in (MaxReshards(0), MaxReshards(0, axis="x"), MaxReshards(0, axis="y")):
        with pytest.raises(InfeasibleError):
            planned(lambda x: x, f32(64, 64), constraints=[*pins, limit], carry=False)


def test_a_copy_by_another_way_holds_what_it_holds() -> None:
    """Whether a copy is made in place depends on its way; what the network counts is what the simulation does."""
    pins = [Pin("w", "[{?}, {?}]") if pin.pattern == "w" else pin for pin in BY_WAY_OF_X]
    specs = (f32(512, 256), f32(512, 256), f32(256, 1024))
    stated = [*pins, MaxReshards(1, axis="x")]
    free = planned(two_gathers, *specs, constraints=stated, carry=False)
    peak = free.memory.peak_bytes
    for share in (0.99, 0.98, 0.97):
        limit = int(peak * share)
        held = planned(two_gathers, *specs, constraints=stated, carry=False, memory_limit=limit)
        assert held.memory.peak_bytes <= limit and _reshards(held, "x") <= 1


def test_a_way_keeps_to_every_limit_about_it() -> None:
    specs = (f32(512, 256), f32(512, 256), f32(256, 1024))
    limits = [MaxReshards(1, axis="x"), MaxReshards(2, axis="y"), MaxReshards(2)]
    held = planned(two_gathers, *specs, constraints=[*BY_WAY_OF_X, *limits], carry=False)
    assert (_reshards(held, "x"), _reshards(held, "y"), _reshards(held)) == (1, 2, 2)


# -- contradictions and wrong statements ---------------------------------------------------------------------------


def test_the_smallest_set_of_statements_at_odds_is_told_with_places() -> None:
    stated = [
        Pin("w1", '[{"x"}, {}]', source="a.yaml:1"),
        SameSharding(["w1", "w2"], source="a.yaml:2"),
        Pin("x", '[{"y"}, {}]', source="a.yaml:3"),
        Replicated("w2", ["x"], source="a.yaml:4"),
        AxisOnly("y", ["x", "out"], source="a.yaml:5"),
    ]
    with pytest.raises(InfeasibleError) as caught:
        planned(mlp, *MLP, constraints=stated)
    assert caught.value.conflict == (
        'a.yaml:1: pin w1: [{"x"}, {}]',
        "a.yaml:2: same sharding: w1, w2",
        "a.yaml:4: replicated w2 over x",
    )


def test_a_pin_with_an_axis_kept_for_others_is_at_odds_with_that() -> None:
    with pytest.raises(InfeasibleError) as caught:
        planned(mlp, *MLP, constraints=[AxisOnly("y", "w1"), Pin("w2", '[{"y"}, {}]'), Pin("w1", '[{"y"}, {}]')])
    assert [c.split(": ", 1)[1] for c in caught.value.conflict] == ['pin w2: [{"y"}, {}]', "axis y only for w1"]


def test_a_statement_made_in_python_knows_its_line() -> None:
    assert "test_restrictions.py:" in Replicated("x").written
    assert Replicated("x") == Replicated("x")
    with pytest.raises(InfeasibleError, match=r"test_restrictions.py:\d+: pin w1: .*\n.*test_restrictions.py:\d+: rep"):
        planned(mlp, *MLP, constraints=[Pin("w1", '[{"x"}, {}]'), Replicated("w1")])
    assert planned(mlp, *MLP, constraints=[Replicated("w1")]).statements[0]["source"] == ""


def test_wrong_statements_are_refused_with_what_to_try() -> None:
    with pytest.raises(ShardingError, match="no axis 'z'; Choices: x, y"):
        planned(mlp, *MLP, constraints=[NoCollective("z")])
    with pytest.raises(InputError, match=r"matches no value of .*did you mean w1"):
        planned(mlp, *MLP, constraints=[AxisOnly("x", ["w11"])])
    with pytest.raises(InputError, match="whole number of 0 or more"):
        MaxReshards(-1)
    with pytest.raises(InputError, match="forward, backward or both"):
        Barrier("x", "sideways")
    with pytest.raises(InputError, match="constraints takes"):
        planned(mlp, *MLP, constraints=["x"])


def test_a_shard_map_of_the_users_is_a_statement_with_its_place() -> None:
    import jax
    from jax.sharding import AbstractMesh, AxisType, PartitionSpec

    mesh = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)

    def f(w: Any, x: Any) -> Any:
        local = jax.shard_map(
            lambda a: jax.lax.psum(jnp.tanh(a), "y"), mesh=mesh, in_specs=PartitionSpec("x", "y"),
            out_specs=PartitionSpec("x", None), check_vma=False,
        )  # fmt: skip
        return local(x) @ w

    held = plan(f, f32(16, 32), f32(32, 64), mesh=AXES, hardware="tpu_v5e")
    assert not any(str(f).startswith("statements") for f in check_plan(held.to_dict()).findings)
    (manual,) = [s for s in held.statements if s["kind"] == "manual"]
    assert manual["in_shardings"] == ['[{"x"}, {"y"}]'] and manual["out_shardings"] == ['[{"x"}, {}]']
    assert manual["axes"] == ["x", "y"] and "test_restrictions.py:" in manual["source"]
    with pytest.raises(InfeasibleError) as caught:
        plan(f, f32(16, 32), f32(32, 64), mesh=AXES, hardware="tpu_v5e", constraints=[NoCollective("y")])
    assert len(caught.value.conflict) == 2 and "psum over y in a shard_map" in caught.value.conflict[1]
    whole = {"patterns": ["**"], "values": [], "outputs": [], "ops": [], "whole": True, "limit": 0, "direction": ""}
    barred = {"kind": "no_collective", "text": "no y", "axes": ["y"], "source": "", **whole}
    told = check_plan({**held.to_dict(), "statements": [barred]}).findings
    assert any("of the program's own shard_map" in str(t) for t in told)
    data = held.to_dict()
    data["statements"][-1]["in_shardings"] = ['[{"y"}, {}]']
    assert any("is broken" in str(f) for f in check_plan(data).findings)


@pytest.mark.parametrize("limit", [MaxReshards(2), MaxReshards(1, axis="x")], ids=str)
def test_a_plan_with_counted_reshards_is_a_start_for_its_own_network(limit: MaxReshards) -> None:
    asked = ask(
        trace(two_gathers, f32(512, 256), f32(512, 256), f32(256, 1024)).program, mesh=AXES, hardware="tpu_v5e",
        constraints=[*BY_WAY_OF_X, limit],
    )  # fmt: skip
    model = build_model(asked.problem)
    found = decide(model)
    start = assignment_of(model.collected, model.encoded, model.repeats, found.schedule)
    assert start is not None
    evaluated = evaluate(model.with_limit(None), start)
    assert evaluated.feasible
    assert evaluated.cost is not None and evaluated.cost * model.encoded.tick_s <= found.objective_s + found.rounding_s


@pytest.mark.parametrize("limit", [0, 1])
def test_what_is_counted_rounds_no_seconds(limit: int) -> None:
    """Deciding whether a value is resharded costs nothing; in the smallest programs nodes for that outnumber others."""
    held = planned(lambda x: (x, x.T), f32(8, 8), constraints=[MaxReshards(limit)])
    assert held.rounding_s == planned(lambda x: (x, x.T), f32(8, 8)).rounding_s


@pytest.mark.parametrize("stated", [MaxReshards(0, axis="one"), Replicated("out", ["one"]), AxisOnly("one", ["x"])])
def test_what_is_stated_about_an_axis_of_size_1_says_nothing_of_the_others(stated: Any) -> None:
    def gathered(x: Any) -> Any:
        return jnp.sort(x, axis=0)

    pinned = [Pin("x", '[{"y"}, {}]'), Pin("out", '[{"y"}, {}]')]
    mesh = {"one": 1, "y": 4}
    free = plan(gathered, f32(64, 64), mesh=mesh, hardware="tpu_v5e", constraints=pinned)
    found = plan(gathered, f32(64, 64), mesh=mesh, hardware="tpu_v5e", constraints=[*pinned, stated])
    assert len(found.collectives) and found.objective_s == free.objective_s
    assert not check_plan(found.to_dict()).findings
