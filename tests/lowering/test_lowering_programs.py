"""Whole programs under random schedules: control flow, recomputation, train steps, and what is refused."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from naive_schedule import MESHES, naive_schedule
from running import Original, run_and_compare

from autoshard.errors import InputError, UnsupportedError
from autoshard.frontends.jax.function import trace
from autoshard.interop.jax import auto_mesh
from autoshard.lowering.collectives import planned_collectives
from autoshard.lowering.lower import lower
from autoshard.models import build
from autoshard.program.rule import rule_from_text
from autoshard.program.schedule import PROGRAM, Placement, Schedule, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.mesh import Mesh
from autoshard.sharding.steps import Reshard, Step, StepKind
from autoshard.verify.runs.collectives import compare
from autoshard.verify.runs.stablehlo import stablehlo_collectives

RNG = np.random.default_rng(3)


def f32(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape) / 3, jnp.float32)


def attention_block(layer: dict[str, Any], x: jax.Array) -> jax.Array:
    q, k, v = jnp.einsum("bsd,dtnh->tbsnh", x, layer["qkv"])
    scores = jnp.einsum("bsnh,btnh->bnst", q, k)
    weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9), axis=-1)
    return x + jnp.einsum("bnst,btnh,nhd->bsd", weights, v, layer["wo"])


@cache
def scan_remat_adamw() -> Original:
    """A scanned, rematerialised attention model with a train step of AdamW."""
    state = {"layers": {"qkv": f32(3, 8, 3, 4, 2), "wo": f32(3, 4, 2, 8)}, "embed": f32(16, 8)}
    tx = optax.adamw(1e-2)
    tokens = jnp.asarray(RNG.integers(0, 16, (4, 6)), jnp.int32)

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens]
        block = jax.checkpoint(attention_block)
        x, _ = lax.scan(lambda x, layer: (block(layer, x), None), x, params["layers"])
        logits = x @ params["embed"].T
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1).mean()

    def step(params: Any, opt: Any, tokens: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        updates, opt = tx.update(grads, opt, params)
        return value, optax.apply_updates(params, updates), opt

    return Original(step, state, tx.init(state), tokens)


@cache
def mlp() -> Original:
    def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            h = jnp.tanh(x @ params[0] + params[1])
            return ((h @ params[2] - y) ** 2).mean()

        value, grads = jax.value_and_grad(loss)(params)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    return Original(step, [f32(12, 24), f32(24), f32(24, 8)], f32(16, 12), f32(16, 8))


@cache
def control_flow() -> Original:
    """while with constants, cond on a computed predicate, nested scans with reverse, ys and literal carries."""

    def f(x: jax.Array, w: jax.Array, n: jax.Array) -> Any:
        def newton(carry: Any) -> Any:
            y, k = carry
            return y - 0.1 * jnp.tanh(y @ w), k + 1

        y, count = lax.while_loop(lambda c: (c[1] < n) & (jnp.abs(c[0]).max() > 0.01), newton, (x, jnp.int32(0)))
        z = lax.cond(y.sum() > 0, lambda a, b: a @ b, lambda a, b: a * 2 - b.sum(), y, w)
        s = lax.switch(n, [lambda a: a, lambda a: a.sum(1, keepdims=True) + 0 * a, lambda a: a + 1], z)

        def inner(c: Any, t: jax.Array) -> Any:
            return c + t, c.max()

        def outer(c: Any, row: jax.Array) -> Any:
            total, peaks = lax.scan(inner, row * 0, jnp.stack([row, row * c[1]]))
            return (c[0] + total, c[1] + 1.0), peaks

        (total, steps), peaks = lax.scan(outer, (jnp.zeros(8), 0.0), s, reverse=True)
        fori = lax.fori_loop(0, 3, lambda i, a: a + lax.dynamic_slice(w, (i, 0), (1, 8))[0], total)
        return y, count, z, total, steps, peaks, fori

    return Original(f, f32(12, 8), f32(8, 8), jnp.int32(2))


PROGRAMS = {f.__name__: f for f in (mlp, scan_remat_adamw, control_flow)}


def check(original: Original, mesh: AtomMesh, seed: int, *, uneven: bool) -> None:
    report = run_and_compare(original, naive_schedule(original.traced.program, mesh, seed, uneven=uneven, place=0.5))
    assert report.ok, report


@pytest.mark.parametrize(
    ("program", "mesh", "uneven"),
    [
        ("mlp", "2x2x2", False),
        ("mlp", "3x2", True),
        ("scan_remat_adamw", "2x4", True),
        ("control_flow", "2x4", False),
        ("control_flow", "6", True),
    ],
)
def test_program_under_a_random_schedule(program, mesh, uneven):
    # S3.11: with no statement at all the results are right
    check(PROGRAMS[program](), MESHES[mesh], 5, uneven=uneven)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_program_under_many_random_schedules(program, mesh, seed):
    check(PROGRAMS[program](), MESHES[mesh], seed, uneven=bool(seed % 2))


TINY = {"batch": 8, "seq": 8, "vocab": 32, "d_model": 16, "heads": 4, "kv_heads": 2, "head_dim": 4, "d_ff": 32}


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["8", "2x4", "2x2x2"])
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("mlp", {}),
        ("transformer", TINY),
        ("transformer", {**TINY, "scan": False}),
        ("moe", TINY),
        ("moe", {**TINY, "dispatch": "ragged"}),
        ("resnet", {"image": 8, "width": 4, "classes": 8}),
    ],
    ids=["mlp", "scan", "unrolled", "moe", "ragged moe", "resnet"],
)
def test_library_model_under_random_schedules(model, options, mesh):
    program = build(model, **options)
    original = Original(program.step, program.init(0), next(iter(program.batches(0))))
    for seed in range(2):
        check(original, MESHES[mesh], seed, uneven=bool(seed))


# -- what else a lowered function must do --------------------------------------------------------------------------


def replicated_schedule(program: Any, mesh: AtomMesh) -> Schedule:
    return naive_schedule(program, mesh, 0, place=0.0, shares=0.0)


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


def test_outputs_cut_unevenly_are_refused():
    mesh = MESHES["8"]
    traced = trace(lambda x: x * 2, f32(6, 3))
    schedule = replicated_schedule(traced.program, mesh)
    layout = Layout(((0,), ()))
    ((use, _),) = [(u, r) for u, r in schedule.uses.items() if u.op == PROGRAM]
    schedule.uses[use] = Reshard(Layout.replicated(2), layout, (Step(StepKind.SLICE, (0,), 0),))
    with pytest.raises(UnsupportedError, match=r"'out' of type float32\[6,3\] would leave in .*must be cut evenly"):
        lower(traced, schedule)


def test_devices_follow_the_mesh_order():
    ids = (1, 0, 3, 2, 5, 4, 7, 6)
    mesh = AtomMesh.split(Mesh(("x", "y"), (2, 4), "mesh", ids))
    original = mlp()
    lowered = lower(original.traced, naive_schedule(original.traced.program, mesh, 1))
    assert [d.id for d in lowered.jax_mesh().devices.flat] == list(ids)
    check(original, mesh, 1, uneven=False)


def test_too_few_devices_is_an_error_that_says_how_to_simulate_them():
    mesh = AtomMesh.split(Mesh.from_dict({"x": 16}))
    lowered = lower(mlp().traced, replicated_schedule(mlp().traced.program, mesh))
    with pytest.raises(InputError, match=r"16 devices, there are 8; .*device_count=16"):
        lowered.jax_mesh()


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


def test_wrong_arguments_are_named():
    traced = trace(lambda a, b: a + b, f32(8), f32(8))
    lowered = lower(traced, replicated_schedule(traced.program, MESHES["8"]))
    with pytest.raises(InputError, match=r"argument b is float32\[4\], the program was planned for float32\[8\]"):
        lowered.fn(f32(8), f32(4))
    with pytest.raises(InputError, match="was traced with arguments"):
        lowered.fn(f32(8), [f32(8)])


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


def test_a_users_shard_map_over_a_split_axis_is_refused():
    jax_mesh = auto_mesh(np.array(jax.devices()[:8]), ("x",))
    inner = jax.shard_map(lambda a: lax.psum(a, "x"), mesh=jax_mesh, in_specs=P("x"), out_specs=P())
    traced = trace(lambda a: inner(a) * 2, f32(8))
    with pytest.raises(UnsupportedError, match="splits into"):
        lower(traced, naive_schedule(traced.program, MESHES["8 split"], 0))


# -- schedules that do not fit ---------------------------------------------------------------------------------------


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
