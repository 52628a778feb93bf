"""Restrictions take parts of axes in the notation of shardings, ``model:(1)2``, as they take whole axes."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from plan_cases import f32, mlp
from restriction_cases import AXES, MLP, findings_with, planned

from autoshard import AxisOnly, ManualComputation, MaxReshards, NoCollective, Pin, Replicated, plan
from autoshard.api.plans import Plan
from autoshard.config import ConfigError, load_config
from autoshard.constraints.axes_named import axes_named, refs_of
from autoshard.errors import InfeasibleError, ShardingError, UnsupportedError
from autoshard.planning.parts import PART_OPS
from autoshard.sharding.mesh import Mesh
from autoshard.verify import check_plan

PART = "y:(1)2"


def planned_mlp(*constraints: Any, **options: Any) -> Plan:
    return planned(mlp, *MLP, constraints=constraints, **options)


def test_a_replicated_value_may_be_cut_by_the_rest_of_the_axis() -> None:
    held = planned_mlp(Replicated("x", [PART]), Pin("x", '[{"y":(2)2, ?}, {?}]'))
    assert held["x"].startswith('[{"y":(2)2')
    with pytest.raises(InfeasibleError):
        planned_mlp(Replicated("x", [PART]), Pin("x", '[{"y", ?}, {?}]'))


def test_a_plan_that_cuts_a_value_by_the_part_does_not_verify() -> None:
    cut = planned_mlp(Pin("x", '[{"y":(1)2, ?}, {?}]'))
    kept = planned_mlp(Replicated("x", [PART]))
    assert any("replicated x over y:(1)2 is broken" in text for text in findings_with(cut, kept))


def test_a_part_of_an_axis_is_used_for_the_named_values_only() -> None:
    held = planned_mlp(AxisOnly(PART, ["w1"]), Pin("w1", '[{"y":(1)2}, {}]'), Pin("w2", '[{"y":(2)2}, {}]'))
    uses = {name for name, text in held.shardings.items() if '"y":(1)2' in text or '"y"}' in text or '"y",' in text}
    assert "w1" in uses <= {"w1"}
    free = planned_mlp(Pin("w1", '[{"y":(1)2}, {}]'), Pin("x", '[{"y":(1)2}, {}]'))
    assert any("axis y:(1)2 only for w1 is broken" in text for text in findings_with(free, held))


def test_no_collective_runs_over_a_barred_part_and_some_may_over_the_rest() -> None:
    stated = Pin("w1", '[{}, {"y":(2)2}]'), Pin("w2", '[{"y":(2)2}, {}]'), Pin("out", "[{}, {}]"), Pin("x", "[{}, {}]")
    held = planned_mlp(*stated, NoCollective(PART))
    assert held.collectives["axes"].str.contains(r"y:\(2\)2").any()
    with pytest.raises(InfeasibleError):
        planned_mlp(*stated, NoCollective("y:(2)2"))


def test_a_collective_over_the_whole_axis_runs_over_its_parts() -> None:
    pins = Pin("x", '[{"y"}, {}]'), Pin("out", "[{}, {}]")
    sent = planned_mlp(*pins, sub_axes={"y": (2, 2)})
    barred = planned_mlp(NoCollective(PART))
    assert any("no collective over y:(1)2 at ** is broken" in text for text in findings_with(sent, barred))


def test_reshards_that_move_a_part_are_counted() -> None:
    pins = Pin("x", '[{"y":(1)2}, {}]'), Pin("w1", "[{}, {}]"), Pin("w2", "[{}, {}]"), Pin("out", "[{}, {}]")
    with pytest.raises(InfeasibleError):
        planned_mlp(*pins, MaxReshards(0, axis=PART))
    assert planned_mlp(*pins, MaxReshards(0, axis="y:(2)2")).status == "optimal"


def test_a_saved_plan_names_the_part_as_the_mesh_does(tmp_path: Path) -> None:
    found = planned_mlp(NoCollective('"y":(1)2', "w1"))
    assert [s["axes"] for s in found.to_dict()["statements"]] == [[PART]]
    found.save(tmp_path / "plan.json")
    assert check_plan(Plan.load(tmp_path / "plan.json").to_dict()).ok


@pytest.mark.parametrize("axis", ["y:(1)3", "y:(3)2", "y:(1)1", "y:(0)2", "y:(8)2", "y:1", "y:", "z:(1)2", "z", ""])
def test_a_plan_file_that_names_no_part_of_its_axes_does_not_verify(axis: str) -> None:
    data = planned_mlp(Replicated("x", [PART])).to_dict()
    data["statements"][0]["axes"] = [axis]
    assert any(str(f).startswith("statements") for f in check_plan(data).findings)


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        (["x", "y"], ("x", "y")),
        (["y", "x"], ("y", "x")),
        (["y:(1)2"], ("y:(1)2",)),
        (["y:(2)2", "y:(1)2"], ("y",)),
        (["y", '"y":(1)2'], ("y",)),
        (["y:(2)2", "x"], ("x", "y:(2)2")),
    ],
)
def test_parts_that_overlap_or_meet_are_one(named: list[str], kept: tuple[str, ...]) -> None:
    assert axes_named(named, Mesh.from_dict(AXES)) == kept
    assert axes_named(kept, Mesh.from_dict(AXES)) == kept
    assert [str(ref).replace('"', "") for ref in refs_of(kept)] == list(kept)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("y:(1)3", 'does not divide the size 4 of axis "y"; a part is written y:\\(before\\)size, where before times'),
        ("y:(1)4", 'is the whole axis; write "y"'),
        ("z:(1)2", "the mesh has no axis 'z'"),
        ("y:1", "cannot read axis 'y:1'"),
        ("y:(0)2", "pre-size must be at least 1"),
    ],
)
def test_parts_that_the_mesh_does_not_have_are_refused(part: str, said: str) -> None:
    with pytest.raises(ShardingError, match=f"no collective over {part.replace('(', '.').replace(')', '.')}.*{said}"):
        planned_mlp(NoCollective(part))


def test_a_manual_computation_runs_over_whole_axes() -> None:
    with pytest.raises(ShardingError, match="is a part of an axis; a manual computation runs over whole ones"):
        planned_mlp(ManualComputation("tanh", [PART], ["[{?}, {?}]"], ["[{?}, {?}]"]))


def test_parts_of_an_axis_that_a_shard_map_runs_over_are_refused() -> None:
    import jax
    import numpy as np
    from jax.sharding import PartitionSpec as P

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("x",))
    inner = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    with pytest.raises(UnsupportedError, match="runs over axis 'x', which statements or sub_axes split"):
        plan(inner, f32(64, 64), mesh=mesh, hardware="tpu_v5e", constraints=NoCollective("x:(1)2"))


def chain(ops: int) -> Any:
    """Two arrays, one of which goes through so many ops."""

    def f(x: Any, w: Any) -> Any:
        for _ in range(ops):
            x = jnp.sin(x)
        return x, w * 2

    return f


def test_a_refusal_says_where_parts_were_too_many_to_be_axes() -> None:
    """Cut by the rest of x beside y and z, x fits; in a program of many ops that is not tried."""
    asked: dict[str, Any] = {"mesh": {"x": 8, "y": 2, "z": 2}, "hardware": "tpu_v5p", "memory_limit": 2700}
    stated = AxisOnly("x:(1)2", ["w"])
    assert plan(chain(20), f32(64, 64), f32(8, 8), constraints=stated, **asked).status == "optimal"
    with pytest.raises(InfeasibleError, match="the parts of x that statements speak of are no axes of their own"):
        plan(chain(PART_OPS), f32(64, 64), f32(8, 8), constraints=stated, **asked)


@pytest.mark.parametrize("stated", [Pin("w", '[{"x":(1)2}, {}]'), Replicated("w", ["x:(1)2"])], ids=str)
def test_a_larger_axis_that_makes_room_is_told_where_statements_name_parts_of_it(stated: Any) -> None:
    asked: dict[str, Any] = {"mesh": {"x": 4}, "hardware": "tpu_v5e", "memory_limit": 6000}
    with pytest.raises(InfeasibleError, match="a mesh axis x of 8 instead of 4: a plan with"):
        plan(chain(1), f32(64, 64), f32(16, 16), constraints=stated, **asked)


CONFIG = """\
model: mlp
mesh: {data: 2, model: 4}
hardware: tpu_v5e
"""


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('no_collective: ["model:(3)2"]', 17),
        ('axis_only: {"model:(3)2": ["state/**"]}', 27),
        ('replicated: [{pattern: batch/x, axes: ["model:(3)2"]}]', 14),
        ('max_reshards: {limit: 2, axis: "model:(3)2"}', 15),
    ],
)
def test_a_config_is_told_where_it_names_a_part_that_its_mesh_does_not_have(
    line: str, column: int, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG + line + "\n")
    with pytest.raises(ConfigError, match=rf"a\.yaml:4:{column}: .*does not divide the size 4"):
        load_config(tmp_path / "a.yaml")


def test_a_config_states_parts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        CONFIG + 'no_collective: ["model:(1)2"]\naxis_only: {"model:(2)2": ["state/**"]}\n'
        'replicated: [{pattern: batch/x, axes: "model:(1)2"}]\nmax_reshards: [{limit: 9, axis: "model:(1)2"}]\n'
    )
    stated = load_config(tmp_path / "a.yaml").statements
    assert {str(s).split(" at ")[0] for s in stated} >= {"no collective over model:(1)2"}
