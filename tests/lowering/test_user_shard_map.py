"""A `shard_map` written by the user stays as it is: its specs are hard, its collectives are kept and counted
(S2.11).
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collective_order import unordered_collectives
from jax import lax
from jax.sharding import PartitionSpec as P

import autoshard
from autoshard.interop.jax import auto_mesh
from autoshard.verify import Runnable, verify_plan
from autoshard.verify.derived import ASKED
from autoshard.verify.runs.collectives import UNCOMBINED, compare
from autoshard.verify.runs.numeric import numeric_check
from autoshard.verify.runs.stablehlo import stablehlo_collectives

MESH = {"x": 2, "y": 4}


def _matmul_by_hand(a, b):
    mesh = auto_mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    body = lambda a, b: jax.lax.psum(a @ b, "y")  # noqa: E731
    return jax.shard_map(body, mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))(a, b)


def _loss(a, b):
    return (_matmul_by_hand(jnp.tanh(a), b) ** 2).sum()


@pytest.fixture(scope="module")
def arguments():
    random = np.random.default_rng(0)
    return random.normal(size=(64, 128)).astype(np.float32), random.normal(size=(128, 256)).astype(np.float32)


@pytest.fixture(scope="module")
def plan(arguments):
    return autoshard.plan(jax.value_and_grad(_loss), *arguments, mesh=MESH, hardware="cpu_sim")


def test_users_collective_is_planned_and_priced(plan):
    own = plan.collectives[plan.collectives["where"].str.contains("shard_map")]
    assert list(own["kind"]) == ["all_reduce"]
    assert list(own["axes"]) == ["y"]
    assert list(own["bytes"]) == [32 * 256 * 4]
    assert (own["seconds"] > 0).all()


def test_planned_collectives_are_the_lowered_ones(plan, arguments):
    text = plan.jit().lower(*arguments).as_text()
    assert compare(plan.lowered.planned, stablehlo_collectives(text), plan.schedule.mesh) == []


def test_values_and_gradients_are_those_of_the_users_program(plan, arguments):
    report = numeric_check(plan.jit(), jax.value_and_grad(_loss), arguments)
    assert report.ok, str(report)


def test_a_mesh_without_the_users_axes_is_refused(arguments):
    with pytest.raises(autoshard.UnsupportedError, match=r"uses mesh axes \['y'\]"):
        autoshard.plan(_loss, *arguments, mesh={"x": 8}, hardware="cpu_sim")


def test_a_pmap_without_a_name_for_its_axis_is_refused_with_what_to_write():
    with pytest.raises(autoshard.UnsupportedError, match=r"jax\.vmap in the place of jax\.pmap, or name the axis"):
        autoshard.plan(jax.pmap(jnp.sin), jnp.ones((8, 4)), mesh={"data": 2, "model": 4}, hardware="cpu_sim")


def test_a_pmap_with_a_name_for_its_axis_is_planned_on_a_mesh_of_that_axis():
    x = jnp.arange(32.0).reshape(8, 4)
    plan = autoshard.plan(jax.pmap(jnp.sin, axis_name="data"), x, mesh={"data": 8}, hardware="cpu_sim")
    np.testing.assert_allclose(plan.jit()(x), jnp.sin(x), rtol=1e-6)


def _on_mesh(body, ins, outs, axes=("x", "y")):
    mesh = auto_mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    return jax.shard_map(body, mesh=mesh, in_specs=ins, out_specs=outs, axis_names=set(axes), check_vma=False)


def ring(a, b):
    """Blocks of b go round while they are used; sums, gathers and a branch beside them."""
    turn = [(k, (k + 1) % 4) for k in range(4)]

    def body(x, w):
        def step(carry, _):
            total, w = carry
            return (total + lax.psum(x @ w, "y"), lax.ppermute(w, "y", turn)), lax.pmax(w.sum(), "x")

        (out, w), most = lax.scan(step, (jnp.zeros((x.shape[0], w.shape[1])), w), None, length=4)
        low, high = lax.psum((x.min(), x.max()), ("x", "y"))
        out = lax.cond(low < high, lambda z: z + lax.pmean(z, "x"), lambda z: z * 1.0, out)
        flipped = lax.ppermute(w, ("x", "y"), [(k, 7 - k) for k in range(8)])
        return out + lax.all_gather(flipped, "y", tiled=True).sum() + most.sum()

    return _on_mesh(body, (P("x", "y"), P("y", None)), P("x", None))(a, b)


def partly_manual(a, b):
    """Manual over one axis of two: the other stays for the plan to use around it."""
    product = _on_mesh(lambda x, w: lax.psum(x @ w, "y"), (P(None, "y"), P("y", None)), P(), axes=("y",))(a, b)
    return jnp.tanh(product).sum(0), jax.nn.softmax(jnp.sin(a) @ b, axis=1)


def gradient_of_partly_manual(a, b):
    return jax.value_and_grad(lambda b: (partly_manual(a, b)[0] ** 2).sum())(b)


@pytest.mark.parametrize("f", [ring, partly_manual, gradient_of_partly_manual], ids=lambda f: f.__name__)
def test_regions_of_users_pass_all_three_checks_and_are_in_order(f, arguments):
    small = arguments[0][:16, :32] / 8, arguments[1][:32, :8] / 8
    pins = [autoshard.Pin("a", '[{"x"}, {?}]')]
    plan = autoshard.plan(f, *small, mesh=MESH, hardware="cpu_sim", constraints=pins, argnames=("a", "b"))
    data = json.loads(json.dumps(plan.to_dict()))
    found = verify_plan(data, Runnable(plan.traced, f, lambda: small))
    assert found.ok, str(found)
    assert [check.name for check in found.checks if check.status.value != "ok"] == [ASKED]
    text = plan.lowered.jit().lower(*small).compile(compiler_options=UNCOMBINED).as_text()
    assert unordered_collectives(text) == []
    if f is not ring:
        report = numeric_check(plan.lower("constraints").jit(), f, small)
        assert report.ok, str(report)


# -- one inside of another -----------------------------------------------------------------------------------------


def _grid():
    return auto_mesh(np.array(jax.devices()[:8]).reshape(2, 2, 2), ("a", "b", "c"))


def _nested(x, w):
    """tanh of x @ w by rows over a; inside of a scan its rows over c and b, and the columns of w over c."""

    def outer(y, w):
        def step(carry, _):
            def inner(z, w):
                return jnp.tanh(z @ lax.all_gather(w, "c", axis=1, tiled=True)), lax.psum(w.sum(0), "b")

            specs = (P(("c", "b")), P(None, "c")), (P(("c", "b")), P("c"))
            u, s = jax.shard_map(inner, in_specs=specs[0], out_specs=specs[1], axis_names={"b", "c"})(carry, w)
            return u + s.sum(), s

        last, sums = lax.scan(step, y, None, length=3)
        return last * lax.axis_index("a") + sums.sum()

    return jax.shard_map(outer, mesh=_grid(), in_specs=(P("a"), P()), out_specs=P("a"), axis_names={"a"})(x, w) * 2


def test_a_shard_map_inside_of_another_runs_and_its_gathers_are_planned():
    args = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((32, 8), (8, 8))]
    plan = autoshard.plan(_nested, *args, mesh=_grid(), hardware="tpu_v5e")
    report = verify_plan(plan.to_dict(), Runnable(plan.lowered.traced, _nested, lambda: tuple(args)))
    assert report.ok, str(report)
    rows = plan.collectives
    assert list(zip(rows["kind"], rows["axes"], rows["times"], strict=True)) == [
        ("all_gather", "c", 3.0), ("all_reduce", "b", 3.0), ("all_gather", "c, b", 3.0), ("all_gather", "c", 3.0),
    ]  # fmt: skip
    constrained = plan.lower("constraints").jit()(*args)
    np.testing.assert_allclose(constrained, jax.jit(_nested)(*args), rtol=1e-5, atol=1e-5)


def test_derivatives_of_nested_shard_maps_which_jax_does_not_compile():
    def nested(x, w):
        def outer(y, w):
            def inner(z, w):
                return jnp.tanh(lax.psum(z @ w, "b"))

            specs = (P(None, "b"), P("b"))
            return jax.shard_map(inner, in_specs=specs, out_specs=P(), axis_names={"b"})(y, w) * lax.axis_index("a")

        return jax.shard_map(outer, mesh=_grid(), in_specs=(P("a"), P()), out_specs=P("a"), axis_names={"a"})(x, w)

    def by_hand(x, w):
        return jnp.tanh(x @ w) * (jnp.arange(32) // 16)[:, None]

    def gradients(f):
        return jax.grad(lambda x, w: jnp.sin(f(x, w)).sum(), argnums=(0, 1))

    args = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((32, 8), (8, 8))]
    plan = autoshard.plan(gradients(nested), *args, mesh=_grid(), hardware="tpu_v5e")
    report = verify_plan(plan.to_dict(), Runnable(plan.lowered.traced, gradients(by_hand), lambda: tuple(args)))
    assert report.ok, str(report)


def _over_x(body, **options):
    def f(x):
        mesh = auto_mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
        return jax.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), **options)(x)

    return f


@pytest.mark.parametrize(
    "f",
    [
        pytest.param(_over_x(lambda x: x / lax.psum(jnp.ones(()), "x")), id="count"),
        pytest.param(_over_x(lambda x: x * lax.psum(jnp.int8(100), ("x", "y")), check_vma=False), id="wraps"),
        pytest.param(_over_x(lambda x: x + lax.ppermute(x, "x", [])), id="permute of nothing"),
    ],
)
def test_what_no_device_sends_is_no_collective(f):
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    plan = autoshard.plan(f, x, mesh=MESH, hardware="cpu_sim")
    assert len(plan.collectives) == 0
    assert plan.verify(f, x, mesh=MESH, hardware="cpu_sim").ok
    np.testing.assert_array_equal(plan.jit()(x), jax.jit(f)(x))
