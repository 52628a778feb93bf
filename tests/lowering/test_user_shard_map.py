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
from autoshard.verify.collectives import UNCOMBINED, compare
from autoshard.verify.numeric import numeric_check
from autoshard.verify.stablehlo import stablehlo_collectives

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
    assert [check.status.value for check in found.checks] == ["ok"] * 3
    text = plan.lowered.jit().lower(*small).compile(compiler_options=UNCOMBINED).as_text()
    assert unordered_collectives(text) == []
    if f is not ring:
        report = numeric_check(plan.lower("constraints").jit(), f, small)
        assert report.ok, str(report)
