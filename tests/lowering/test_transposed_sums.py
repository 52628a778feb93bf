"""A matmul whose result is transposed next is moved the way the transpose leaves it (docs/lowering.md)."""

import re
from random import Random

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp
from naive_schedule import MESHES, Naive

import autoshard
from autoshard import Pin
from autoshard.frontends.jax.function import trace
from autoshard.lowering.lower import lower
from autoshard.lowering.transposed import transposed
from autoshard.sharding.layout import Layout
from autoshard.sharding.steps import Reshard, Step, StepKind


def loss(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(jnp.tanh(x @ w))


def gradient(w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.grad(loss)(w, x)


def spec(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def moved(text: str, op: str) -> list[str]:
    """The types of the results of a kind of collective in a StableHLO text."""
    return re.findall(rf'"stablehlo\.{op}".*?\) -> tensor<([^>]+)>', text, re.DOTALL)


def data_parallel(function, *specs: jax.ShapeDtypeStruct, result: str = "{}, {}"):
    pins = [Pin("w", "[{}, {}]"), Pin("x", '[{"data"}, {}]'), Pin("out", f"[{result}]")]
    return autoshard.plan(function, *specs, mesh={"data": 4}, hardware="tpu_v5e", constraints=pins)


def test_a_gradient_is_summed_the_way_its_weight_lies() -> None:
    """JAX makes it as the transpose of a matmul; if that one is summed, XLA turns weights around in memory."""
    plan = data_parallel(gradient, spec(16, 32), spec(4096, 16))  # its sum is a reduce-scatter and an all-gather
    assert "transpose" in {op.kind for op, _ in plan.program.walk()}
    assert moved(plan.lower().stablehlo("tpu"), "reduce_scatter") == ["16x8xf32"]


def test_a_gradient_is_scattered_along_the_same_dimension() -> None:
    plan = data_parallel(gradient, spec(16, 32), spec(4096, 16), result='{"data"}, {}')
    assert moved(plan.lower().stablehlo("tpu"), "reduce_scatter") == ["4x32xf32"]


def test_a_matmul_that_is_read_elsewhere_too_is_summed_as_it_is() -> None:
    def both(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        product = x.T @ w
        return product, product.T

    pins = [Pin("w", '[{"data"}, {}]'), Pin("x", '[{"data"}, {}]'), Pin("out/0", "[{}, {}]"), Pin("out/1", "[{}, {}]")]
    plan = autoshard.plan(both, spec(64, 32), spec(64, 16), mesh={"data": 4}, hardware="tpu_v5e", constraints=pins)
    assert "16x32xf32" in moved(plan.lower().stablehlo("tpu"), "all_reduce")


def test_as_constraints_a_gradient_is_constrained_the_way_its_weight_lies() -> None:
    plan = data_parallel(gradient, spec(16, 32), spec(4096, 16), result='{"data"}, {}')
    text = plan.lower("constraints").stablehlo("tpu")
    found = re.search(
        r"(%\d+) = stablehlo.dot_general .*contracting_dims = \[0\].*-> tensor<32x16xf32>\n"
        r".*(%\d+) = stablehlo.transpose \1, .*-> tensor<16x32xf32>\n.*sdy.sharding_constraint \2 <(.*)> ",
        text,
    )
    assert found is not None and found[3] == '@mesh, [{"data"}, {}]'


OFTEN = ("2x4", "6")


@pytest.mark.parametrize(
    "mesh", [*OFTEN, *(pytest.param(mesh, marks=pytest.mark.slow) for mesh in MESHES if mesh not in OFTEN)]
)
def test_sums_of_transposed_matmuls_are_right_under_random_schedules(mesh: str) -> None:
    """Reduce-scatters, all-to-alls and uneven cuts of matmuls with a batch dimension, turned around."""

    def program(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        turned = jnp.transpose(jnp.einsum("bij,bjk->bik", a, b), (2, 0, 1))
        return turned, jnp.tanh(turned).sum(axis=1)

    traced = trace(program, spec(6, 8, 12), spec(6, 12, 16))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s.shape, np.float32) for s in (spec(6, 8, 12), spec(6, 12, 16))]
    wanted = program(*arrays)
    turned = 0
    for seed in range(12):
        schedule = Naive(traced.program, MESHES[mesh], Random(seed), uneven=seed % 2 == 1).schedule()
        product = next(op for op, _ in traced.program.walk() if op.kind == "dot_general").results[0]
        turned += any(
            any(s.is_collective for s in reshard.steps)
            for use, reshard in schedule.uses.items() if use.value_in(traced.program) == product
        )  # fmt: skip
        for found, right in zip(lower(traced, schedule).jit()(*arrays), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=2e-5, atol=2e-4)
    assert turned > 3


@given(order=st.permutations(range(3)), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_a_transposed_reshard_leads_to_the_transposed_layout(order: list[int], seed: int) -> None:
    random = Random(seed)
    source = Layout(((0,), (1,), ()), (2,))
    steps = random.choice(
        [
            (Step(StepKind.REDUCE_SCATTER, (2,), 2),),
            (Step(StepKind.ALL_TO_ALL, (0,), 0, 2), Step(StepKind.ALL_REDUCE, (2,))),
            (Step(StepKind.ALL_GATHER, (1,), 1), Step(StepKind.REDUCE_SCATTER, (2,), 0)),
        ]
    )
    target = source
    for step in steps:
        target = step.apply(target)
    found = transposed(Reshard(source, target, steps), order)
    found.check()
    assert found.target.dims == tuple(target.dims[d] for d in order)
    assert found.target.unreduced == target.unreduced
