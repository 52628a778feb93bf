"""Which values exist in memory, on programs small enough to see it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import ShapeDtypeStruct, lax
from plan_cases import f32, ops_of, program_of

from autoshard.costs.fusion import analyse, is_root


def written(f: Callable[..., Any], *specs: Any) -> list[str]:
    """Kinds of the ops whose results are materialised, program outputs apart."""
    program = program_of(f, *specs)
    fusion = analyse(program)
    outputs = set(program.body.results)
    return [op.kind for op, _ in program.walk() if any(r in fusion and r not in outputs for r in op.results)]


M = f32(64, 64)


def smooth(a: Any, b: Any) -> Any:
    """A reducer that is none of the named ones."""
    return a * b + a + b


def test_a_pointwise_chain_fuses_into_the_matmul_that_reads_it() -> None:
    assert written(lambda x, w: jnp.tanh(x * 2.0) @ w, M, M) == []


def test_inputs_and_outputs_are_materialised() -> None:
    program = program_of(lambda x: jnp.tanh(x * 2.0), M)
    assert {*program.body.args, *program.body.results} <= analyse(program).materialised


def test_literals_are_not() -> None:
    program = program_of(lambda x: x * 2.0, M)
    (mul,) = ops_of(program, "mul")
    assert mul.operands[1] not in analyse(program)


@pytest.mark.parametrize(
    ("f", "specs", "kind"),
    [
        (lambda x, w: jnp.tanh(x @ w), (M, M), "dot_general"),
        (lambda x: jnp.tanh(x.sum(axis=0)), (M,), "reduce_sum"),
        (lambda x: jnp.tanh(lax.cummax(x, 0)), (M,), "cummax"),
        (lambda x: jnp.tanh(lax.reduce(x, np.float32(1), smooth, (0,))), (M,), "reduce"),
        (lambda x: jnp.tanh(lax.linalg.schur(x)[0]), (M,), "schur"),
        (lambda x: jnp.tanh(lax.linalg.tridiagonal(x)[1]), (M,), "tridiagonal"),
        (lambda x: jnp.tanh(jnp.sort(x)), (M,), "sort"),
        (lambda x, i: jnp.tanh(x[i]), (M, ShapeDtypeStruct((4,), jnp.int32)), "gather"),
        (lambda x: jnp.tanh(jnp.concatenate([x, x])), (M,), "concatenate"),
        (lambda x: jnp.tanh(lax.scan(lambda c, _: (c * 2.0, None), x, None, length=3)[0]), (M,), "scan"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_r1_roots_write_their_results(f: Callable[..., Any], specs: tuple[Any, ...], kind: str) -> None:
    assert kind in written(f, *specs)


def test_r1_what_a_sort_or_a_loop_reads_is_written_before_it() -> None:
    assert written(lambda x: jnp.sort(jnp.tanh(x)), M) == ["tanh"]
    assert "tanh" in written(lambda x: lax.scan(lambda c, _: (c * 2.0, None), jnp.tanh(x), None, length=3)[0], M)


def test_r1_what_a_matmul_or_a_reduction_reads_may_fuse() -> None:
    assert written(lambda x: jnp.tanh(x).sum(axis=0), M) == []
    assert written(lambda x: lax.reduce(jnp.tanh(x), np.float32(1), smooth, (0,)), M) == []


def test_r2_a_value_read_twice_from_two_large_sources_is_written() -> None:
    def f(a: Any, b: Any, w: Any) -> Any:
        s = a + b
        return jnp.tanh(s) @ w, jnp.sin(s) @ w

    assert written(f, M, M, M) == ["add"]


def test_r2_one_source_is_cheaper_to_read_again() -> None:
    def f(a: Any, w: Any) -> Any:
        s = jnp.exp(a)
        return jnp.tanh(s) @ w, jnp.sin(s) @ w

    assert written(f, M, M) == []


def test_r2_small_sources_do_not_count() -> None:
    def f(a: Any, bias: Any, w: Any) -> Any:
        s = a + bias
        return jnp.tanh(s) @ w, jnp.sin(s) @ w

    assert written(f, M, f32(64), M) == []


def test_r2_narrow_sources_of_a_wide_value_are_read_again() -> None:
    """Two bfloat16 sources hold as many bytes as their float32 sum: below 1.6 times."""
    half = ShapeDtypeStruct((64, 64), jnp.bfloat16)

    def f(a: Any, b: Any, w: Any) -> Any:
        s = a.astype(jnp.float32) + b.astype(jnp.float32)
        return jnp.tanh(s) @ w, jnp.sin(s) @ w

    assert written(f, half, half, M) == []


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).sum()


def test_r3_the_gradient_of_picking_one_entry_per_row_is_pointwise() -> None:
    program = program_of(jax.grad(cross_entropy), f32(64, 128), ShapeDtypeStruct((64,), jnp.int32))
    (scatter,) = ops_of(program, "scatter-add")
    assert not is_root(scatter)
    assert scatter.results[0] not in analyse(program)


def test_r3_the_gradient_of_an_embedding_sums_updates_and_is_written() -> None:
    tokens = ShapeDtypeStruct((16,), jnp.int32)
    program = program_of(jax.grad(lambda table, i: jnp.tanh(table[i]).sum()), f32(64, 8), tokens)
    (scatter,) = ops_of(program, "scatter-add")
    assert is_root(scatter)


def test_zeros_that_start_a_loop_are_made_inside_of_it() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, xk: (c + xk, None), jnp.zeros((64,)), x)[0]

    program = program_of(f, M)
    (zeros,) = ops_of(program, "broadcast_in_dim")
    assert zeros.results[0] not in analyse(program)


def test_a_barrier_writes_what_enters_it() -> None:
    assert "tanh" in written(lambda x, w: lax.optimization_barrier(jnp.tanh(x)) @ w, M, M)


def test_branches_are_analysed_as_blocks_of_their_own() -> None:
    def f(p: Any, x: Any, w: Any) -> Any:
        return lax.cond(p, lambda x, w: jnp.tanh(x) @ w, lambda x, w: x, x, w)

    program = program_of(f, ShapeDtypeStruct((), jnp.bool_), M, M)
    (tanh,) = ops_of(program, "tanh")
    assert tanh.results[0] not in analyse(program)
