"""What a lowered function does: collectives, devices, donation, arguments, literals, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from lowered_programs import check, f32, mlp, replicated_schedule, scan_remat_adamw
from naive_schedule import MESHES, naive_schedule
from running import Original

import autoshard
from autoshard.frontends.jax.function import trace
from autoshard.interop.jax import auto_mesh
from autoshard.lowering.collectives import planned_collectives, sent_as
from autoshard.lowering.lower import lower
from autoshard.program.schedule import PROGRAM, Placement, Schedule, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.steps import Reshard, Step, StepKind
from autoshard.verify.runs.collectives import compare
from autoshard.verify.runs.stablehlo import stablehlo_collectives


def test_a_sum_cut_over_an_axis_is_one_all_reduce_of_the_result():
    mesh = MESHES["2x4"]
    traced = trace(lambda x: x.sum(), f32(8, 8))
    (op,) = traced.program.body.ops
    x, y = op.operands[0], op.results[0]
    cut, partial = Layout(((1,), ())), Layout((), (1,))
    schedule = Schedule(
        mesh,
        {op.id: Placement(((1,), ()))},
        {x: cut, y: partial},
        {},
        {
            Use(op.id, 0): Reshard.identity(cut),
            Use(PROGRAM, 0): Reshard(partial, Layout(()), (Step(StepKind.ALL_REDUCE, (1,)),)),
        },
    )
    (found,) = planned_collectives(traced.program, schedule)
    assert (found.kind, found.atoms, found.elements, found.local_bytes, found.times) == ("all_reduce", (1,), 1, 4.0, 1)
    assert str(lower(traced, schedule).jit().lower(f32(8, 8)).as_text()).count("all_reduce") == 1


def test_collectives_in_a_scan_count_once_with_its_length_as_times():
    program = scan_remat_adamw().traced.program
    schedule = naive_schedule(program, MESHES["2x4"], 5, place=0.6)
    looped = [c for c in planned_collectives(program, schedule) if c.loops]
    assert looped
    assert {c.times for c in looped} == {3}


def test_inputs_cut_unevenly_keep_the_even_part_at_the_boundary():
    mesh = MESHES["2x4"]
    traced = trace(lambda x: (x * 2).sum(), f32(6, 3))
    mul, total = traced.program.body.ops
    cut, partial = Layout(((0, 1), ())), Layout((), (0, 1))
    schedule = Schedule(
        mesh,
        {mul.id: Placement(((0, 1), ())), total.id: Placement(((0, 1), ()))},
        {mul.operands[0]: cut, mul.results[0]: cut, total.results[0]: partial},
        {},
        {
            Use(mul.id, 0): Reshard.identity(cut),
            Use(total.id, 0): Reshard.identity(cut),
            Use(PROGRAM, 0): Reshard(partial, Layout(()), (Step(StepKind.ALL_REDUCE, (0, 1)),)),
        },
    )
    lowered = lower(traced, schedule)
    assert lowered.in_shardings[0].spec == P(("x",), None)
    x = f32(6, 3)
    np.testing.assert_allclose(lowered.jit()(x), (x * 2).sum(), rtol=1e-5)


def test_devices_follow_the_mesh_order():
    ids = (1, 0, 3, 2, 5, 4, 7, 6)
    mesh = AtomMesh.split(Mesh(("x", "y"), (2, 4), "mesh", ids))
    original = mlp()
    lowered = lower(original.traced, naive_schedule(original.traced.program, mesh, 1))
    assert [d.id for d in lowered.jax_mesh().devices.flat] == list(ids)
    check(original, mesh, 1, uneven=False)


def test_collectives_of_256_devices_are_lowered_without_them():
    mesh = AtomMesh.split(Mesh.from_dict({"data": 16, "model": 16}), {"model": (4, 4)})
    traced = trace(lambda a, b: jnp.tanh(a @ b).max(axis=1), f32(512, 256), f32(256, 1024))
    lowered = lower(traced, naive_schedule(traced.program, mesh, 1))
    assert lowered.planned
    assert compare(lowered.planned, stablehlo_collectives(lowered.stablehlo()), mesh) == []


def test_donated_arguments_are_donated():
    traced = trace(lambda s, x: {"w": s["w"] + x}, {"w": f32(8)}, f32(8), donate_argnums=0)
    lowered = lower(traced, replicated_schedule(traced.program, MESHES["8"]))
    assert lowered.donate_argnums == (0,)
    state = jax.device_put({"w": f32(8)}, lowered.in_shardings[0])
    lowered.jit()(state, f32(8))
    assert state["w"].is_deleted()


def test_python_numbers_are_arguments_too():
    traced = trace(lambda a, b: a * b, f32(8), 2.0)
    lowered = lower(traced, replicated_schedule(traced.program, MESHES["8"]))
    np.testing.assert_allclose(lowered.fn(jnp.ones(8), 3.0), 3 * np.ones(8))
    np.testing.assert_allclose(lowered.jit()(jnp.ones(8), 3.0), 3 * np.ones(8))


def test_literals_and_inputs_may_be_outputs():
    traced = trace(lambda a: {"one": 1.5, "same": a, "zeros": jnp.zeros(3)}, f32(8))
    lowered = lower(traced, naive_schedule(traced.program, MESHES["8"], 3))
    a = f32(8)
    out = lowered.jit()(a)
    assert float(out["one"]) == 1.5
    np.testing.assert_array_equal(out["same"], a)
    np.testing.assert_array_equal(out["zeros"], np.zeros(3))


def test_fourier_transforms_of_cut_batches():
    # apart from the other primitives: compiled without some passes, XLA for CPU gives its FFT a layout it cannot run
    original = Original(lambda x: jnp.abs(jnp.fft.rfft(x)), f32(8, 6))
    lowered = lower(original.traced, naive_schedule(original.traced.program, MESHES["2x4"], 1, place=1.0))
    np.testing.assert_allclose(lowered.jit()(*original.args), original.expected, rtol=1e-5, atol=1e-5)


def test_lowered_function_can_be_differentiated():
    traced = trace(lambda w, x: jnp.tanh(x @ w).sum(), f32(8, 4), f32(16, 8))
    lowered = lower(traced, naive_schedule(traced.program, MESHES["2x4"], 2))
    w, x = f32(8, 4), f32(16, 8)
    expected = jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)
    np.testing.assert_allclose(jax.jit(jax.grad(lowered.fn))(w, x), expected, rtol=1e-4, atol=1e-5)


def test_a_users_shard_map_runs_inside_ours():
    jax_mesh = auto_mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))

    def body(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.psum(a @ b, "y")

    inner = jax.shard_map(body, mesh=jax_mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))
    original = Original(lambda a, b: jnp.tanh(inner(a * 2, b)), f32(4, 8), f32(8, 6))
    check(original, MESHES["2x4"], 1, uneven=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("reduce", [jnp.max, jnp.min, lambda x: jnp.isfinite(jnp.abs(x).max())])
def test_maxima_over_devices_keep_a_number_that_is_none(reduce, dtype):
    asked = {
        "mesh": {"data": 2, "model": 4},
        "hardware": "cpu_sim",
        "constraints": autoshard.Pin("x0", '[{"model"}, {"data"}]'),
    }
    x = jnp.asarray(np.random.default_rng(0).normal(size=(32, 16)), dtype)

    def reduced(x0):
        return reduce(x0)

    plan = autoshard.plan(reduced, x, **asked)
    assert [c.combiner for c in plan.lowered.planned] in (["max"], ["min"])
    for spoiled in (x, x.at[3, 2].set(jnp.nan), x.at[30, 9].set(-jnp.inf), -jnp.abs(x), x * jnp.nan):
        found, expected = (f(spoiled).astype(jnp.float32) for f in (plan.jit(), jax.jit(reduce)))
        np.testing.assert_array_equal(found, expected)
    assert plan.verify(reduced, x, **asked).ok


@pytest.mark.parametrize(
    ("dtype", "platform", "sent"),
    [
        ("bfloat16", "cpu", "int16"), ("bfloat16", "gpu", "bfloat16"), ("float32", "gpu", "int32"),
        ("float32", "tpu", "float32"), ("int32", "cpu", "int32"), ("float32", None, "int32"),
    ],
)  # fmt: skip
def test_maxima_go_as_integers_where_nan_would_be_lost_and_bytes_stay_as_they_are(
    dtype: str, platform: str | None, sent: str
) -> None:
    assert sent_as(dtype, platform) == sent
