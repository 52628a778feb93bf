"""A matmul that memory bounds and reads its weights out of stacked ones does so at a share of its own."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct, lax

import autoshard
from autoshard.costmodels.compiled import WorkKind
from autoshard.costs.kinds import work_kinds
from autoshard.frontends.jax.function import trace

ROWS, SIZE, LAYERS = 8, 512, 4
X = ShapeDtypeStruct((ROWS, SIZE), jnp.bfloat16)
STACK = ShapeDtypeStruct((LAYERS, SIZE, SIZE), jnp.bfloat16)
INT8, SCALES = ShapeDtypeStruct((LAYERS, SIZE, SIZE), jnp.int8), ShapeDtypeStruct((LAYERS, SIZE), jnp.bfloat16)
ONE = ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)


def scanned(x: Any, w: Any) -> Any:
    return lax.scan(lambda x, w: (x @ w, None), x, w)[0]


def quantised(x: Any, w: Any, s: Any) -> Any:
    return lax.scan(lambda x, ws: (x @ (ws[0].astype(x.dtype) * ws[1]), None), x, (w, s))[0]


def indexed(x: Any, w: Any) -> Any:
    return lax.fori_loop(0, LAYERS, lambda at, x: x @ w[at], x)


def unrolled(x: Any, w: Any) -> Any:
    return x @ w[0] @ w[1] @ w[2] @ w[3]


def listed(x: Any, a: Any, b: Any) -> Any:
    return x @ a @ b


def of_a_part(x: Any, w: Any) -> Any:
    return x[: ROWS // 2] @ w


def joined(x: Any, w: Any) -> Any:
    return x @ jnp.concatenate([w[1, : SIZE // 2], w[0, SIZE // 2 :]])


PROGRAMS = [
    (scanned, (X, STACK), True),
    (quantised, (X, INT8, SCALES), True),
    (indexed, (X, STACK), True),
    (unrolled, (X, STACK), True),
    (listed, (X, ONE, ONE), False),
    (of_a_part, (X, ONE), False),
    (joined, (X, STACK), False),
]


@pytest.mark.parametrize(("function", "specs", "sliced"), PROGRAMS, ids=[p[0].__name__ for p in PROGRAMS])
def test_weights_that_are_slices_make_a_kind_of_their_own(function: Any, specs: Any, sliced: bool) -> None:
    program = trace(function, *specs, name="step").program
    kinds = work_kinds(program)
    found = {kinds[op.id] for op, _ in program.walk() if op.kind == "dot_general"}
    assert found == {WorkKind.SLICED if sliced else WorkKind.MATMUL}


@pytest.mark.parametrize(("function", "specs", "sliced"), PROGRAMS, ids=[p[0].__name__ for p in PROGRAMS])
def test_the_checker_finds_them_itself(function: Any, specs: Any, sliced: bool) -> None:
    asked: dict[str, Any] = {"mesh": {"x": 2}, "hardware": "tpu_v5p@compiler", "memory_limit": "none"}
    values = jax.tree.map(lambda s: jnp.ones(s.shape, s.dtype), specs)
    assert autoshard.plan(function, *specs, **asked).verify(function, *values, **asked).ok


def test_matmuls_that_are_alike_but_for_where_their_weights_lie_have_a_price_each() -> None:
    def step(x: Any, w: Any, one: Any) -> Any:
        return x @ one, x @ w[0]

    plan = autoshard.plan(step, X, STACK, ONE, mesh={"x": 1}, hardware="tpu_v5p@compiler", memory_limit="none")
    seconds = [plan.cost.op_seconds[op.id] for op, _ in plan.program.walk() if op.kind == "dot_general"]
    work = plan.machine.profile.compiled_work
    assert work is not None and work.matmul_memory is not None and work.sliced_memory is not None
    assert seconds[1] / seconds[0] == pytest.approx(work.matmul_memory / work.sliced_memory)
