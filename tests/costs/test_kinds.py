"""What ops do, as machines with compiled work tell it apart."""

from typing import Any

import jax
import jax.numpy as jnp

from autoshard.costmodels.compiled import WorkKind
from autoshard.costs.kinds import work_kinds
from autoshard.frontends.jax.function import trace

SPEC = jax.ShapeDtypeStruct
WIDE, ROWS = SPEC((64, 64), jnp.float32), SPEC((8, 64), jnp.float32)


def kinds(function: Any, *specs: Any) -> dict[str, set[WorkKind]]:
    """Kind of op -> what ops of that kind do."""
    program = trace(function, *specs, name="f").program
    found = work_kinds(program)
    out: dict[str, set[WorkKind]] = {}
    for op, _ in program.walk():
        if op.id in found:
            out.setdefault(op.kind, set()).add(found[op.id])
    return out


def test_pointwise_work_before_a_matmul_fuses_into_it() -> None:
    assert kinds(lambda w, x: jnp.exp(x) @ w, WIDE, ROWS)["exp"] == {WorkKind.ELEMENTWISE}


def test_what_waits_for_a_reduction_does_not() -> None:
    found = kinds(lambda w, x: (x - jnp.max(x, axis=1, keepdims=True)) @ w, WIDE, ROWS)
    assert found["reduce_max"] == found["sub"] == {WorkKind.REDUCED}


def test_a_matmul_ends_the_waiting() -> None:
    found = kinds(lambda w, x: jnp.exp((x - jnp.max(x, axis=1, keepdims=True)) @ w) @ w, WIDE, ROWS)
    assert found["exp"] == {WorkKind.ELEMENTWISE}


def test_softmax_between_the_matmuls_of_attention_is_work_on_scores() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bshd,bthd->bhst", q, k)
        return jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores), v)

    found = kinds(attention, *(SPEC((2, 64, 4, 32), jnp.float32),) * 3)
    assert found["exp"] == found["reduce_max"] == found["sub"] == {WorkKind.SCORES}
    assert found["dot_general"] == {WorkKind.ATTENTION}


def loss(w: Any, x: Any) -> Any:
    """One matmul and a square."""
    return jnp.sum(jnp.square(x @ w))


def test_a_gradient_that_is_applied_where_it_lies_is_an_updated_matmul() -> None:
    found = kinds(lambda w, x: w - 0.1 * jax.grad(loss)(w, x), WIDE, ROWS)
    assert found["dot_general"] == {WorkKind.MATMUL, WorkKind.UPDATED}


def test_a_gradient_that_is_handed_out_is_not() -> None:
    assert kinds(jax.grad(loss), WIDE, ROWS)["dot_general"] == {WorkKind.MATMUL}


def test_a_gradient_that_waits_for_the_norm_of_all_is_not() -> None:
    def step(w: Any, x: Any) -> Any:
        g = jax.grad(loss)(w, x)
        return w - g / jnp.sqrt(jnp.sum(g * g))

    assert kinds(step, WIDE, ROWS)["dot_general"] == {WorkKind.MATMUL}


def test_a_gradient_made_in_a_loop_and_applied_behind_it_is_not() -> None:
    def step(ws: Any, x: Any) -> Any:
        def body(x: Any, w: Any) -> Any:
            return x @ w, None

        return ws - 0.1 * jax.grad(lambda ws: jnp.sum(jnp.square(jax.lax.scan(body, x, ws)[0])))(ws)

    assert WorkKind.UPDATED not in kinds(step, SPEC((3, 64, 64), jnp.float32), ROWS)["dot_general"]


def one_sequence(q: Any, k: Any, v: Any) -> Any:
    """Attention of a single sequence: heads are the only dimension that all three tensors of its matmuls have."""
    scores = jnp.einsum("shd,thd->hst", q, k)
    return jnp.einsum("hst,thd->shd", jax.nn.softmax(scores, axis=-1), v)


HEADS = SPEC((64, 4, 32), jnp.float32)


def test_attention_of_one_sequence_is_attention() -> None:
    assert kinds(one_sequence, HEADS, HEADS, HEADS)["dot_general"] == {WorkKind.ATTENTION}


def test_so_are_its_gradients_where_no_exponential_is_in_their_block() -> None:
    """A loop over layers keeps the shares for its way back, which has matmuls of the same sizes and no softmax."""

    def layers(x: Any) -> Any:
        return jnp.sum(jax.lax.scan(lambda h, _: (one_sequence(h, h, h), None), x, None, length=2)[0])

    program = trace(jax.grad(layers), HEADS, name="f").program
    found = work_kinds(program)
    blocks = [op.regions[0] for op in program.body.ops if op.kind == "scan"]
    assert len(blocks) == 2
    assert not any(op.kind == "exp" for op in blocks[1].ops)
    dots = [found[op.id] for block in blocks for op in block.ops if op.kind == "dot_general"]
    assert len(dots) == 6 and set(dots) == {WorkKind.ATTENTION}


def test_experts_have_one_dimension_in_common_too_and_are_no_attention() -> None:
    def experts(w: Any, x: Any) -> Any:
        return jnp.sum(jax.nn.silu(jnp.einsum("ecd,edf->ecf", x, w)))

    weights, rows = SPEC((4, 64, 64), jnp.float32), SPEC((4, 32, 64), jnp.float32)
    assert kinds(jax.value_and_grad(experts, argnums=(0, 1)), weights, rows)["dot_general"] == {WorkKind.MATMUL}
