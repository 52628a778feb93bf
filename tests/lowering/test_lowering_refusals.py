"""What lowering refuses: layouts that cannot be run, arguments of other types, and schedules that do not fit."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, tree_util
from jax.sharding import PartitionSpec as P
from lowered_programs import f32, mlp, replicated_schedule
from naive_schedule import MESHES, naive_schedule

import autoshard
from autoshard.errors import InputError, UnsupportedError
from autoshard.frontends.jax.function import trace
from autoshard.interop.jax import auto_mesh
from autoshard.lowering.lower import lower
from autoshard.program.rule import rule_from_text
from autoshard.program.schedule import PROGRAM, Placement, Schedule, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.steps import Reshard, Step, StepKind


def test_outputs_cut_unevenly_are_refused():
    mesh = MESHES["8"]
    traced = trace(lambda x: x * 2, f32(6, 3))
    schedule = replicated_schedule(traced.program, mesh)
    layout = Layout(((0,), ()))
    ((use, _),) = [(u, r) for u, r in schedule.uses.items() if u.op == PROGRAM]
    schedule.uses[use] = Reshard(Layout.replicated(2), layout, (Step(StepKind.SLICE, (0,), 0),))
    with pytest.raises(UnsupportedError, match=r"'out' of type float32\[6,3\] would leave in .*must be cut evenly"):
        lower(traced, schedule)


def test_too_few_devices_is_an_error_that_says_how_to_simulate_them():
    mesh = AtomMesh.split(Mesh.from_dict({"x": 16}))
    lowered = lower(mlp().traced, replicated_schedule(mlp().traced.program, mesh))
    with pytest.raises(InputError, match=r"16 devices, there are 8; .*device_count=16"):
        lowered.jax_mesh()


def test_wrong_arguments_are_named():
    traced = trace(lambda a, b: a + b, f32(8), f32(8))
    lowered = lower(traced, replicated_schedule(traced.program, MESHES["8"]))
    with pytest.raises(InputError, match=r"argument b is float32\[4\], the program was planned for float32\[8\]"):
        lowered.fn(f32(8), f32(4))
    with pytest.raises(InputError, match="argument b has b/0, which it was planned without, and has no b"):
        lowered.fn(f32(8), [f32(8)])


@pytest.mark.parametrize("x", [np.ones((12, 8)), np.ones((7, 8)), np.ones(8)], ids=["other", "odd", "rank"])
def test_arguments_of_other_shapes_are_told_that_autoshard_jit_plans_them_too(x):
    plan = autoshard.plan(
        jnp.tanh, f32(8, 8), mesh={"x": 8}, hardware="tpu_v5e", constraints=[autoshard.Pin("x", '[{"x"}, {}]')]
    )
    with pytest.raises(InputError, match=r"the program was planned for float32\[8, 8\]; .*autoshard.jit"):
        plan.jit()(x.astype(np.float32))


def test_a_tree_with_other_leaves_is_told_by_their_paths():
    plan = autoshard.plan(lambda p: p["w"] * 2, {"w": f32(8)}, mesh={"x": 8}, hardware="tpu_v5e")
    with pytest.raises(InputError, match=r"argument p has p/b, which it was planned without; .*autoshard.jit"):
        plan.jit()({"w": np.ones(8, np.float32), "b": np.ones(8, np.float32)})


@pytest.mark.parametrize(
    ("planned", "called", "told"),
    [
        ([f32(8)], (f32(8),), "in a tuple for a list"),
        ({"w": [f32(8)]}, {"w": (f32(8),)}, "in a tuple for a list"),
        ([tree_util.Partial(print, f32(8))], [tree_util.Partial(repr, f32(8))], "a Partial in it has other"),
    ],
)
def test_a_tree_of_other_containers_is_told_by_the_first_of_them(planned, called, told):
    plan = autoshard.plan(lambda p: jax.tree.leaves(p)[0] * 2, planned, mesh={"x": 8}, hardware="tpu_v5e")
    with pytest.raises(InputError, match=f"argument p has the leaves that it was planned with, but {told}"):
        plan.jit()(called)


def test_placing_what_cannot_be_cut_as_planned_names_the_planned_shape():
    plan = autoshard.plan(
        jnp.tanh, f32(8), mesh={"x": 8}, hardware="tpu_v5e", constraints=[autoshard.Pin("x", '[{"x"}]')]
    )
    with pytest.raises(InputError, match=r"planned for float32\[8\]"):
        plan.place(np.ones(7, np.float32))


def test_a_cut_inside_of_a_compound_dimension_is_refused_with_its_layouts():
    traced = trace(lambda x: lax.reshape(x, (4, 6)), f32(24))
    (op,) = traced.program.body.ops
    assert op.rule is not None
    schedule = replicated_schedule(traced.program, MESHES["2x2x2"])
    minor = op.rule.results[0][1][0]
    factors = tuple((0,) if f == minor else () for f in range(len(op.rule.factor_sizes)))
    before, after = Layout(((0,),)), Layout(((), (0,)))
    schedule.placements[op.id] = Placement(factors)
    schedule.uses[Use(op.id, 0)] = Reshard(Layout(((),)), before, (Step(StepKind.SLICE, (0,), 0),))
    schedule.definitions[op.operands[0]] = Layout(((),))
    schedule.definitions[op.results[0]] = after
    schedule.uses[Use(PROGRAM, 0)] = Reshard(after, Layout(((), ())), (Step(StepKind.ALL_GATHER, (0,), 1),))
    match = r'cannot run reshape\(float32\[24\] \[{"x"}\]\) -> .* cut inside of a dimension'
    with pytest.raises(UnsupportedError, match=match):
        lower(traced, schedule)


def test_a_reshape_that_permutes_is_cut_where_its_rule_is_right_and_refused_where_not():
    traced = trace(lambda x: lax.reshape(x, (4, 5), dimensions=(1, 0, 2)), f32(2, 2, 5))
    (op,) = traced.program.body.ops
    rule = rule_from_text("([i, j, k])->([ij, k]) {i=2, j=2, k=5}")  # in truth it is ([i, j, k])->([ji, k])
    program = replace(traced.program, body=replace(traced.program.body, ops=(replace(op, rule=rule),)))
    traced = replace(traced, program=program)
    mesh = MESHES["2x2x2"]
    for factors, refused in ((((), (), (0,)), False), (((0,), (), ()), True)):
        schedule = replicated_schedule(program, mesh)
        placement = schedule.placements[op.id] = Placement(factors)
        before, after = placement.operand(rule, 0), placement.result(rule, 0)
        schedule.definitions[op.operands[0]] = before
        schedule.definitions[op.results[0]] = after
        schedule.shared.clear()
        schedule.uses[Use(op.id, 0)] = Reshard.identity(before)
        dim = next(d for d, atoms in enumerate(after.dims) if atoms)
        gather = Step(StepKind.ALL_GATHER, after.dims[dim], dim)
        schedule.uses[Use(PROGRAM, 0)] = Reshard(after, Layout.replicated(2), (gather,))
        if refused:
            with pytest.raises(UnsupportedError, match="permutes dimensions"):
                lower(traced, schedule)
        else:
            x = f32(2, 2, 5)
            expected = lax.reshape(x, (4, 5), dimensions=(1, 0, 2))
            np.testing.assert_array_equal(lower(traced, schedule).jit()(x), expected)


def test_a_users_shard_map_over_a_split_axis_is_refused():
    jax_mesh = auto_mesh(np.array(jax.devices()[:8]), ("x",))
    inner = jax.shard_map(lambda a: lax.psum(a, "x"), mesh=jax_mesh, in_specs=P("x"), out_specs=P())
    traced = trace(lambda a: inner(a) * 2, f32(8))
    with pytest.raises(UnsupportedError, match="splits into"):
        lower(traced, naive_schedule(traced.program, MESHES["8 split"], 0))


# -- schedules that do not fit -----------------------------------------------------------------------------------------


def broken(change: Any, match: str) -> None:
    traced = trace(lambda x: jnp.tanh(x) * 2, f32(8, 8))
    schedule = replicated_schedule(traced.program, MESHES["2x4"])
    change(schedule, traced.program)
    with pytest.raises(InputError, match=match):
        lower(traced, schedule)


def test_a_missing_definition_is_named():
    broken(lambda s, p: s.definitions.pop(p.body.ops[0].results[0]), "does not say in which layout .*tanh")


def test_a_missing_use_is_named():
    broken(lambda s, p: s.uses.pop(Use(p.body.ops[1].id, 0)), "does not say how .* takes value 'tanh")


def test_a_missing_placement_is_named():
    broken(lambda s, p: s.placements.pop(p.body.ops[0].id), "does not place op .*tanh")


def test_a_use_that_does_not_lead_to_what_the_op_wants_is_named():
    def change(s: Schedule, p: Any) -> None:
        s.placements[p.body.ops[1].id] = Placement(((0,), ()))

    broken(change, "operand 0 of op .*mul.* is in .*wanted")


def test_steps_that_lead_elsewhere_are_named():
    def change(s: Schedule, p: Any) -> None:
        whole = Layout.replicated(2)
        s.uses[Use(p.body.ops[1].id, 0)] = Reshard(whole, whole, (Step(StepKind.SLICE, (0,), 0),))

    broken(change, "lead from")


def test_a_partial_sum_at_an_output_is_refused():
    def change(s: Schedule, p: Any) -> None:
        whole = Layout.replicated(2)
        s.uses[Use(PROGRAM, 0)] = Reshard(whole, Layout(((), ()), (0,)), (Step(StepKind.MASK, (0,)),))

    broken(change, "is still a partial sum")


def test_a_cut_of_a_factor_that_must_be_whole_is_refused():
    traced = trace(lambda x: jnp.cumsum(x, axis=0), f32(8, 8))
    schedule = replicated_schedule(traced.program, MESHES["2x4"])
    op = traced.program.body.ops[0]
    layout = Layout(((0,), ()))
    schedule.placements[op.id] = Placement(((0,), ()))
    schedule.uses[Use(op.id, 0)] = Reshard(Layout.replicated(2), layout, (Step(StepKind.SLICE, (0,), 0),))
    schedule.definitions[op.results[0]] = layout
    schedule.uses[Use(PROGRAM, 0)] = Reshard(layout, Layout.replicated(2), (Step(StepKind.ALL_GATHER, (0,), 0),))
    with pytest.raises(InputError, match="wants factor 0 whole"):
        lower(traced, schedule)
