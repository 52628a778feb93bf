"""Memory where matmuls are calls of libraries: rules L1 to L5, on programs small enough to see them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct, lax
from plan_cases import atoms, f32, machine, ops_of, program_of, traced

import autoshard
from autoshard.costs.fusion import Fusion, analyse
from autoshard.costs.liveness import analyse as liveness
from autoshard.costs.memory import headroom, simulate, sizes
from autoshard.program.program import Program
from autoshard.sharding.layout import Layout
from autoshard.verify.plan.checker import check_plan

M = f32(64, 64)


def both(f: Callable[..., Any], *specs: Any, **options: Any) -> tuple[Program, Fusion]:
    program = program_of(f, *specs, **options)
    return program, analyse(program, "gpu")


def held(f: Callable[..., Any], *specs: Any) -> list[str]:
    """Kinds of the ops whose results have memory of their own, program outputs apart."""
    program, fusion = both(f, *specs)
    outputs = set(program.body.results)
    return [op.kind for op, _ in program.walk() if any(r in fusion.held and r not in outputs for r in op.results)]


def test_prices_know_the_same_values_as_anywhere() -> None:
    for name in ("mlp", "looped"):
        program = traced(name).program
        assert analyse(program, "gpu").materialised == analyse(program).materialised


def test_l1_what_a_matmul_reads_and_writes_is_in_memory() -> None:
    assert held(lambda x, w: jnp.maximum((x * 2.0) @ w, 0.0) + 1.0, M, M) == ["mul", "dot_general"]
    assert held(lambda x, w: jnp.maximum((x * 2.0), 0.0).sum(), M, M) == []


def test_l1_a_product_that_is_only_converted_to_a_wider_type_is_written_in_it() -> None:
    wide = [ShapeDtypeStruct((64, 64), jnp.bfloat16)] * 2
    assert held(lambda x, w: (x @ w).astype(jnp.float32) * 2.0, *wide) == ["convert_element_type"]
    assert held(lambda x, w: (x @ w).astype(jnp.float16).astype(jnp.float32) * 2.0, *wide) == ["dot_general"]

    def twice(x: jax.Array, w: jax.Array) -> Any:
        product = x @ w
        return product.astype(jnp.float32) * 2.0, product * x

    assert held(twice, *wide) == ["dot_general"]


@pytest.mark.parametrize(("f", "kept"), [(jnp.tanh, True), (jnp.exp, True), (lambda x: x * x, False)])
def test_l2_costly_results_are_in_memory_where_two_kernels_would_compute_them(f: Any, kept: bool) -> None:
    def shared(x: jax.Array) -> Any:
        y = f(x)
        return (y * 2.0).sum(0), y.max(1)

    program, fusion = both(shared, M)
    (first, *_) = program.body.ops
    assert (first.results[0] in fusion.held) is kept
    assert not analyse(program).held & set(first.results)


def step(w1: jax.Array, w2: jax.Array, x: jax.Array) -> Any:
    loss = lambda w1, w2: jnp.square(jnp.maximum(x @ w1, 0.0) @ w2).sum()  # noqa: E731
    g1, g2 = jax.grad(loss, argnums=(0, 1))(w1, w2)
    return w1 - g1, w2 - g2


def test_l3_gradients_of_weights_wait_for_the_others() -> None:
    program, fusion = both(step, M, M, M)
    assert fusion.calls is not None
    dots = ops_of(program, "dot_general")
    late = [op.id in fusion.calls.late for op in dots]
    assert sum(late) == 2 and not late[0]
    live = liveness(program, fusion)
    end = max(live.time[op.id] for op, last in zip(dots, late, strict=True) if not last)
    assert all(live.time[op.id] > end for op, last in zip(dots, late, strict=True) if last)
    assert sorted(live.time.values()) == list(range(1, len(live.time) + 1))
    assert [op.id for op in fusion.order(program.body)] != [op.id for op in program.body.ops]
    assert analyse(program).order(program.body) == program.body.ops


def test_l3_what_a_loop_reads_does_not_wait() -> None:
    def f(x: jax.Array, w: jax.Array) -> Any:
        return lax.scan(lambda c, _: (c * 2.0, None), x @ w, None, length=3)[0]

    _, fusion = both(f, M, M)
    assert fusion.calls is not None and not fusion.calls.late


@pytest.mark.parametrize(("heads", "twice"), [("kg", True), ("k", False)])
def test_l4_scores_of_grouped_heads_lie_in_memory_in_two_orders(heads: str, twice: bool) -> None:
    def f(p: jax.Array, v: jax.Array, q: jax.Array) -> Any:
        p = p * 2.0
        return jnp.einsum(f"b{heads}st,btkh->bs{heads}h", p, v), jnp.einsum(f"b{heads}st,bs{heads}h->btkh", p, q)

    groups = (4, 2)[: len(heads)]
    program, fusion = both(f, f32(2, *groups, 8, 8), f32(2, 8, 4, 16), f32(2, 8, *groups, 16))
    (scaled,) = ops_of(program, "mul")
    assert fusion.twice == (set(scaled.results) if twice else set())
    size, layout = sizes(program, atoms({"x": 2}), None, fusion.twice), Layout.replicated(3 + len(heads))
    assert size(scaled.results[0], layout) == (2 if twice else 1) * program.type_of(scaled.results[0]).bytes


def test_l4_plain_matmuls_read_both_ways() -> None:
    assert both(step, M, M, M)[1].twice == frozenset()


def test_l5_a_pointwise_result_lies_beside_its_operand_but_over_a_donated_input() -> None:
    def arrays(f: Callable[..., Any], profile: str, **options: Any) -> int:
        plan = autoshard.plan(f, M, M, mesh={"x": 1}, hardware=profile, memory_limit="none", **options)
        return plan.memory.peak_bytes // (64 * 64 * 4)

    beside = lambda x, w: jnp.sort(jnp.sort(x) * 2.0 + w)  # noqa: E731
    assert (arrays(beside, "tpu_v5e"), arrays(beside, "h100")) == (3, 4)
    fused = lambda x, w: jnp.maximum(x @ w, 0.0)  # noqa: E731
    assert (arrays(fused, "tpu_v5e"), arrays(fused, "h100")) == (3, 4)
    over = lambda w, g: w - 0.1 * g  # noqa: E731
    assert arrays(over, "h100", donate_argnums=(0,)) == arrays(over, "tpu_v5e", donate_argnums=(0,)) == 2


def test_plans_of_gpus_say_so_and_are_checked_by_the_same_rules() -> None:
    specs = (f32(256, 256), f32(256, 256), f32(512, 256))
    plan = autoshard.plan(step, *specs, mesh={"x": 2, "y": 2}, hardware="h100")
    data = plan.to_dict()
    assert data["hardware"]["machine"]["profile"]["memory_rules"] == "gpu"
    assert check_plan(data).ok
    assert headroom(machine({"x": 2}, "h100")) == 0.25 and headroom(machine({"x": 2})) == 0.15
    assert data["memory"]["allocation_bytes"] == -(-data["memory"]["peak_bytes"] * 5 // 4)
    data["hardware"]["machine"]["profile"].pop("memory_rules")  # a plan of an earlier version says less
    assert {finding.topic for finding in check_plan(data).findings} >= {"memory"}


@pytest.mark.parametrize("profile", ["cpu_sim", "tpu_v4", "h100"])
def test_machines_without_rules_are_counted_as_the_tpu_compiler_holds_it(profile: str) -> None:
    plan = autoshard.plan(step, M, M, M, mesh={"x": 1}, hardware=profile)
    plain = simulate(plan.program, plan.schedule, liveness(plan.program, analyse(plan.program)))
    assert (plan.memory == plain) is (profile != "h100")
