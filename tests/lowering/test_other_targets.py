"""Targets that leave collectives to XLA: the same values, shardings as planned, and an account of what XLA did."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh as JaxMesh
from jax.sharding import PartitionSpec
from lowered_programs import loops_and_branch
from naive_schedule import MESHES, naive_schedule
from running import FAST, Original

import autoshard
from autoshard.api.targets import TARGETS, Target
from autoshard.cli import main
from autoshard.errors import InputError
from autoshard.propagation.mlir.module import propagate_mlir
from autoshard.verify.runs.collectives import FoundCollective, FoundLoop
from autoshard.verify.runs.numeric import compare_outputs, program_tolerances
from autoshard.verify.runs.stablehlo import stablehlo_collectives
from autoshard.verify.runs.traffic import Traffic, changes, moved_bytes, of_found


def f32(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def program(x, w, n):
    """A scan with a body that has something to say, a while, a cond and a random number."""
    c, ys = loops_and_branch(x, w, n)
    return {
        "c": c,
        "soft": jax.nn.softmax(c, axis=-1),
        "total": ys.sum(),
        "noise": jax.random.normal(jax.random.key(n), (8,)),
    }


@pytest.fixture(scope="module")
def original():
    return Original(program, f32(8, 16), f32(16, 16), jnp.int32(2))


@pytest.mark.parametrize("target", ["constraints", "shardings"])
@pytest.mark.parametrize(
    ("mesh", "uneven"), [("6", True), *(pytest.param(m, False, marks=pytest.mark.slow) for m in ("2x4", "8 split"))]
)
def test_results_are_those_of_the_unsharded_program(original, target, mesh, uneven):
    schedule = naive_schedule(original.traced.program, MESHES[mesh], 5, uneven=uneven, place=0.5)
    chosen = Target(target, original.lower(schedule))
    compiled = chosen.jit(donate_argnums=()).lower(*original.args).compile(compiler_options=FAST)
    placed = jax.tree.map(jax.device_put, original.args, chosen.in_shardings)
    tolerances = program_tolerances(original.traced.program)
    report = compare_outputs(compiled(*placed), original.expected, tolerances=tolerances)
    assert report.ok, str(report)


def test_constraints_stand_in_bodies_of_loops(original):
    schedule = naive_schedule(original.traced.program, MESHES["2x4"], 5, place=0.7)
    text = Target("constraints", original.lower(schedule)).stablehlo()
    body = text[text.index("@closed_call(" if "@closed_call(" in text else " do {") :]  # JAX 0.12 writes it in place
    assert "sdy.sharding_constraint" in body
    assert stablehlo_collectives(text) == []
    assert "sdy.sharding_constraint" not in Target("shardings", original.lower(schedule)).stablehlo()


def test_what_a_barrier_hands_on_is_constrained_where_it_is_defined_not_as_its_first_use_wants_it():
    def step(d, w):
        d = lax.optimization_barrier(jnp.tanh(d))
        return d @ w, d.T @ w, jnp.exp(d)

    plan = autoshard.plan(
        step, *[jax.ShapeDtypeStruct(s, jnp.float32) for s in ((512, 512), (512, 2048))], argnames=("d", "w"),
        mesh={"x": 4}, hardware="tpu_v5e",
        constraints=[autoshard.Pin("d", '[{"x"}, {}]'), autoshard.Pin("w", '[{}, {"x"}]')],
    )  # fmt: skip
    barrier = next(op for op, _ in plan.program.walk() if op.kind == "optimization_barrier")
    assert plan.schedule.definitions[barrier.results[0]].text(plan.schedule.mesh) == '[{"x"}, {}]'
    text = plan.lower("constraints").stablehlo().splitlines()
    at = next(k for k, line in enumerate(text) if "stablehlo.optimization_barrier" in line)
    made = text[at].split()[0]
    assert f'sdy.sharding_constraint {made} <@mesh, [{{"x"}}, {{}}]>' in text[at + 1]


@pytest.fixture(scope="module")
def plan():
    def matmuls(x, w1, w2):
        return jax.nn.relu(x @ w1) @ w2

    return autoshard.plan(
        matmuls, *[jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 256), (256, 512), (512, 64))],
        mesh={"data": 2, "model": 4}, hardware="tpu_v5e",
        constraints=[
            autoshard.Pin("x", '[{"data"}, {}]'), autoshard.Pin("w1", '[{}, {"model"}]'),
            autoshard.Pin("w2", '[{"model"}, {}]'), autoshard.Pin("out", '[{"data"}, {"model"}]'),
        ],
    )  # fmt: skip


def test_explicit_keeps_every_planned_collective(plan):
    report = plan.lower("explicit").report()
    assert report.planned.total() == report.count("kept") == len(plan.lowered.planned) > 0
    assert report.count("changed") == report.count("dropped") == report.count("added") == 0
    assert report.to_dict()["planned_bytes"] == report.to_dict()["compiled_bytes"] > 0


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4", "int2"])
def test_collectives_of_narrow_types_are_kept_though_xla_for_cpu_widens_them(dtype):
    pins = [autoshard.Pin("x", '[{"data"}, {}]'), autoshard.Pin("out", "[{}, {}]")]
    x = jax.ShapeDtypeStruct((16, 32), dtype)
    plan = autoshard.plan(lambda x: x[::-1], x, mesh={"data": 8}, hardware="cpu_sim", constraints=pins)
    report = plan.lower("explicit").report()
    assert report.count("kept") == report.planned.total() == report.found.total() == 1


@pytest.mark.parametrize("target", ["constraints", "shardings", "mlir"])
def test_every_planned_and_every_found_collective_is_accounted_for_once(plan, target):
    report = plan.lower(target).report()
    assert report.count("kept") + report.count("changed") + report.count("dropped") == report.planned.total()
    assert report.count("kept") + report.count("changed") + report.count("added") == report.found.total()
    assert str(report).startswith(target)


def test_xla_for_cpu_makes_the_planned_reduce_scatter_an_all_reduce(plan):
    assert [t.kind for t in plan.lower("explicit").report().planned] == ["reduce_scatter"]
    (change,) = plan.lower("shardings").report().changes
    assert (change.what, change.found.kind, change.found.axes) == ("changed", "all_reduce", "model")


def test_shardings_of_every_target_are_the_plans(plan):
    for name in TARGETS:
        target = plan.lower(name)
        assert target.in_shardings == plan.in_shardings
        assert target.out_shardings == plan.out_shardings


def test_an_unknown_target_is_told(plan):
    with pytest.raises(InputError, match="no target 'pmap'; there are explicit, constraints, shardings, mlir"):
        plan.lower("pmap")


# -- text with sdy shardings ----------------------------------------------------------------------------------------


def test_mlir_has_the_plans_own_mesh_with_sub_axes_where_an_axis_is_split(original):
    mesh = MESHES["8 split"]
    text = Target("mlir", original.lower(naive_schedule(original.traced.program, mesh, 5, place=0.6))).stablehlo()
    assert 'sdy.mesh @mesh = <["x"=8]>' in text
    assert '"x":(1)2' in text
    assert '"x:(1)2"' not in text
    assert '"x":(1)2, "x":(2)4' not in text  # the two parts in order are the axis


@pytest.mark.parametrize("mesh", ["2x4", "8 split"])
def test_mlir_is_taken_by_shardys_propagation(original, mesh):
    text = Target(
        "mlir", original.lower(naive_schedule(original.traced.program, MESHES[mesh], 5, place=0.6))
    ).stablehlo()
    assert "sdy.sharding" in str(propagate_mlir(text))


# -- counting -------------------------------------------------------------------------------------------------------


def found(kind, groups, elements, *trips):
    return FoundCollective(kind, groups, elements, "float32", tuple(FoundLoop("loop", n) for n in trips))


PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))


@pytest.mark.parametrize(
    ("kind", "moved"), [("all_gather", 400.0), ("all_reduce", 400.0), ("reduce_scatter", 200.0), ("all_to_all", 200.0)]
)
def test_bytes_are_those_a_device_sends_in_a_ring(kind, moved):
    assert moved_bytes(of_found([found(kind, PAIRS, 100)], MESHES["2x2x2"])) == moved


def test_a_permute_moves_what_goes_to_another_device():
    pairs = ((0, 0), (1, 2), (2, 1), (3, 3), (4, 4), (5, 6), (6, 5), (7, 7))
    (traffic,) = of_found([found("permute", pairs, 100)], MESHES["2x2x2"])
    assert (traffic.axes, traffic.moved) == ("y, z", 200.0)


def test_permutes_of_a_users_region_are_kept_whoever_sends_to_whom():
    def ring(x):
        mesh = JaxMesh(np.array(jax.devices()[:8]), ("x",))
        pairs = [(k, (k + 1) % 8) for k in range(8)]
        body = lambda x: lax.ppermute(x, "x", pairs)  # noqa: E731
        return jax.shard_map(body, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"))(x)

    report = autoshard.plan(ring, f32(16, 8), mesh={"x": 8}, hardware="cpu_sim").lower("explicit").report()
    assert (report.count("kept"), report.planned.total(), report.found.total()) == (1, 1, 1)


def test_edges_exchanged_between_neighbours_are_kept():
    def conv(x, w):
        return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))

    pins = [autoshard.Pin("x", '[{}, {"x"}, {}]'), autoshard.Pin("out", '[{}, {"x"}, {}]')]
    plan = autoshard.plan(conv, f32(2, 64, 4), f32(3, 4, 4), mesh={"x": 8}, hardware="cpu_sim", constraints=pins)
    found = plan.lower().report()
    assert found.count("kept") == found.planned.total() == found.found.total() > 0


def test_collectives_in_loops_count_as_often_as_they_run():
    assert of_found([found("all_reduce", PAIRS, 100, 3, 4)], MESHES["2x2x2"]).total() == 12


def test_changes_pair_what_is_alike_first():
    gather, scatter = Traffic("all_gather", "x", 100, 100.0), Traffic("reduce_scatter", "x", 400, 200.0)
    reduce, other = Traffic("all_reduce", "x", 400, 400.0), Traffic("all_gather", "y", 8, 8.0)
    told = changes(Counter({gather: 3, scatter: 1}), Counter({gather: 2, reduce: 1, other: 5}))
    assert [(c.what, c.planned, c.found, c.times) for c in told] == [
        ("kept", gather, gather, 2),
        ("changed", scatter, reduce, 1),
        ("dropped", gather, None, 1),
        ("added", None, other, 5),
    ]


# -- the command ----------------------------------------------------------------------------------------------------

CONFIG = """\
model: {name: mlp, batch: 32, inputs: 16, hidden: 32, outputs: 8}
mesh: {data: 2, model: 4}
hardware: cpu_sim
"""


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lower")
    (directory / "mlp.yaml").write_text(CONFIG)
    assert main(["solve", str(directory / "mlp.yaml"), "--output", str(directory), "--json"]) == 0
    return directory / "plan.json"


@pytest.mark.parametrize("target", TARGETS)
def test_the_command_writes_text_and_reports(plan_file, tmp_path, capsys, target):
    capsys.readouterr()
    assert main(["lower", str(plan_file), "--target", target, "--output", str(tmp_path / "out.mlir")]) == 0
    assert capsys.readouterr().out.startswith(f"{target}: of ")
    text = (tmp_path / "out.mlir").read_text()
    assert text.startswith("module @jit_")
    assert ("sdy.sharding" in text) or target == "explicit"


def test_the_command_tells_what_is_wrong(plan_file, capsys):
    assert main(["lower", str(plan_file), "--target", "pmap"]) == 2
    assert "no target 'pmap'" in capsys.readouterr().err
    assert main(["lower", str(plan_file.parent / "absent.json")]) == 2
    assert "does not exist" in capsys.readouterr().err
