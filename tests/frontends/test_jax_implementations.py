"""Primitives that stand for functions of JAX are read as these; a choice that is known is read as what it takes."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

from autoshard.frontends.jax.function import trace
from autoshard.rules import register_rule, unregister_rule

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)


def primitive(name: str, impl: Callable[..., Any], lowered: Callable[..., Any] | None = None) -> Primitive:
    made = Primitive(name)
    made.def_impl(impl)
    made.def_abstract_eval(lambda *avals, **params: avals[0])
    mlir.register_lowering(made, mlir.lower_fun(lowered or impl, multiple_results=False))
    return made


first_p = primitive("first_of_two", lambda x, y: x)
scaled_p = primitive("scaled", lambda x, *, by: jnp.maximum(x, 0) * by)
quick_p = primitive("quick_tanh", jnp.tanh, lowered=lambda x: x / (1 + jnp.abs(x)))
host_p = primitive("on_the_host", lambda x: x.sort().item(), lowered=jnp.sin)


@pytest.fixture
def ruled() -> Iterator[None]:
    register_rule("scaled", "([i, j])->([i, j])")
    yield
    unregister_rule("scaled")


def kinds(f: Any, *args: Any) -> list[str]:
    return [op.kind for op in trace(f, *args).program.body.ops]


def test_a_primitive_is_read_as_the_function_that_implements_and_lowers_it(same_values: Any) -> None:
    traced = same_values(lambda x: scaled_p.bind(x, by=3.0), X)
    assert [op.kind for op in traced.program.body.ops] == ["max", "mul"]
    assert not traced.program.warnings


def test_work_for_operands_that_an_implementation_ignores_is_not_planned() -> None:
    assert kinds(lambda x: first_p.bind(jnp.sin(x), jnp.cos(x)), X) == ["sin"]


def test_a_primitive_that_is_lowered_to_something_else_stays_and_is_told() -> None:
    program = trace(lambda x: quick_p.bind(x), X).program
    assert [op.kind for op in program.body.ops] == ["quick_tanh"]
    assert "no sharding rule for quick_tanh" in program.warnings[0]


def test_a_primitive_whose_implementation_needs_numbers_stays() -> None:
    assert kinds(lambda x: host_p.bind(x), X) == ["on_the_host"]


def test_a_rule_by_the_user_comes_before_the_implementation(ruled: None) -> None:
    assert kinds(lambda x: scaled_p.bind(x, by=3.0), X) == ["scaled"]


@pytest.mark.parametrize(("index", "kind"), [(-3, "sin"), (0, "sin"), (1, "cos"), (7, "cos")])
def test_a_switch_by_a_known_index_is_its_branch(same_values: Any, index: int, kind: str) -> None:
    def f(x: Any) -> Any:
        return jax.lax.switch(jnp.int32(index), [jnp.sin, jnp.cos], x)

    assert [op.kind for op in same_values(f, X).program.body.ops] == [kind]


@pytest.mark.parametrize(("chosen", "kind"), [(False, "cos"), (True, "sin")])
def test_a_select_by_a_known_predicate_is_what_it_takes(same_values: Any, chosen: bool, kind: str) -> None:
    def f(x: Any) -> Any:
        return jax.lax.select(jnp.bool_(chosen), jnp.sin(x), jnp.cos(x))

    assert [op.kind for op in same_values(f, X).program.body.ops] == [kind]
