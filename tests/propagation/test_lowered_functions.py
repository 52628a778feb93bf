"""What the form that JAX lowers a function to does to propagation: small cases with Shardy as the judge."""

import jax
import jax.numpy as jnp
import pytest
from against_shardy import JAX_MESH, MESH, U, ours_and_shardys
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from autoshard.frontends.jax.function import trace
from autoshard.propagation import propagate
from autoshard.propagation.program.order import AROUND, IN_BODY, IN_CONDITION, in_order

SQUARE = (8, 8)
STACK = (4, 8, 8)
DATA, MODEL = P("data", U), P("model", U)


def stated(x, *spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(JAX_MESH, P(*spec)))


def check(function, specs, shapes=(SQUARE, SQUARE)) -> list[str]:
    """Ours, which are Shardy's but for closed dimensions: Shardy does not write those of a value to the output."""
    ours, theirs = (
        [s.replace(", ?", "").replace("?", "") for s in side] for side in ours_and_shardys(function, shapes, specs)
    )
    assert ours == theirs
    return ours


def test_what_the_init_brings_wins_over_what_a_constant_of_the_loop_brings() -> None:
    def f(a, b):
        b = stated(b, None, "data")
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * b, a)

    assert check(f, (DATA, None))[0] == '[{"data"}, {}]'


def test_that_the_body_hands_a_constant_of_a_while_loop_back_is_a_use_of_it() -> None:
    def f(a, c):
        return jax.lax.while_loop(lambda d: (d * c).sum() < 3, lambda d: stated(c.T, "data", U), a)

    assert check(f, (None, None))[0] == '[{"data"}, {}]'


def test_a_constraint_on_a_constant_of_a_while_loop_takes_over_what_the_body_hands_back() -> None:
    def f(a, b):
        e = jnp.tanh(a)
        return jax.lax.while_loop(lambda c: (c * e).sum() < 3, lambda c: stated(e, "data", None) * c, b)

    check(f, (None, MODEL))


def test_constants_of_the_condition_pass_axes_to_what_the_loop_carries() -> None:
    def f(a, b):
        return jax.lax.while_loop(lambda c: (c * b).sum() < 3, lambda c: c.T @ c, a)

    check(f, (None, DATA))


@pytest.mark.parametrize("reverse", [False, True])
def test_slices_of_a_scan_reach_the_stack_through_the_loop(reverse: bool) -> None:
    def f(a, xs):
        return jax.lax.scan(lambda c, x: (jnp.tanh(c @ x), c + x), a, xs, reverse=reverse)

    ours = check(f, (P("data", U), P(U, U, "model")), (SQUARE, STACK))
    assert ours[1] == '[{}, {"data"}, {"model"}]'


def test_the_first_dimension_of_a_stack_passes_nothing_to_another_stack() -> None:
    ours = check(lambda a, xs: jax.lax.scan(lambda c, x: (c + x, c), a, xs), (None, P("data", U, U)), (SQUARE, STACK))
    assert ours[1] == "[{}, {}, {}]"


def test_an_array_that_is_scanned_and_captured_is_carried_twice() -> None:
    def f(a, b):
        def body(g, x):
            t = jnp.tanh(a.T)
            return t, t[0] * x

        d, e = jax.lax.scan(body, a, a)
        return jax.lax.scan(lambda c, p: (c, stated(d, "data", U)[0] * p), 0, b)[1], e

    check(f, (None, None))


@pytest.mark.parametrize("spec", [DATA, P(U, "model")])
def test_loops_in_loops(spec) -> None:
    def f(a, b):
        def outer(c, x):
            inner = jax.lax.fori_loop(0, 2, lambda i, d: d.T @ b, c)
            return inner + x, inner[0]

        return jax.lax.scan(outer, a, b)

    check(f, (spec, None))


def test_branches_take_outer_values_as_they_are() -> None:
    def f(a, b):
        c = jax.lax.cond(a.sum() > 0, lambda p, q: p + q, lambda p, q: p * jnp.exp(q), a, b)
        return c, a.T

    check(f, (DATA, P(U, "data")))


def test_a_closed_constraint_in_a_branch_binds_the_outer_value() -> None:
    def f(a, b):
        x = jnp.tanh(a)
        return x + jax.lax.cond(b.sum() > 0, lambda p: stated(p, "data", None) + p, jnp.exp, x)

    assert check(f, (None, None))[0] == '[{"data"}, {}]'


def test_a_closed_constraint_in_a_branch_takes_over_the_result_of_a_loop() -> None:
    def f(a, b):
        x = jax.lax.while_loop(lambda c: c.sum() < 3, lambda c: c + 1, a)
        return jax.lax.cond(b.sum() > 0, lambda p: stated(p, "data", None) + p, jnp.exp, x), x.T @ x

    check(f, (P(U, "data"), None))


def test_users_of_a_value_are_looked_at_in_the_order_of_the_lowered_module() -> None:
    users = [(AROUND, 3), (AROUND, 5)]
    assert in_order(users, 2, is_edge=False) == (2, 5, 3)
    assert in_order(users, 2, is_edge=True) == (2, 3, 5)
    inside = [(IN_CONDITION, 0), (IN_CONDITION, 1), (IN_BODY, 2), (IN_BODY, 3)]
    assert in_order([*inside, (AROUND, 5)], 4, is_edge=True) == (1, 0, 3, 2, 4, 5)


def test_an_output_behind_a_constraint_on_a_loops_result_has_the_sharding_of_the_constraint() -> None:
    def f(a, b):
        c = jax.lax.fori_loop(0, 3, lambda i, d: jnp.sin(d), a)
        return c, stated(c, None, "data")

    assert check(f, (MODEL, None))[0] == '[{}, {"data"}]'


def test_a_constraint_on_a_constant_binds_the_copy_that_it_uses() -> None:
    def f(a):
        ones = jnp.ones(SQUARE)
        return ones, stated(ones, "data", "model"), a + ones

    ours = check(f, (P(U, "data"),), (SQUARE,))
    assert ours[0] == "[{}, {}]"


def test_uses_behind_a_chain_of_constraints_take_the_last_ones_result() -> None:
    def f(a, b):
        x = jnp.tanh(a)
        return stated(stated(x, "data", U), None, "model"), jnp.sin(x), x

    assert check(f, (None, None))[1] == '[{}, {"model"}]'


def test_the_end_of_a_chain_of_constraints_on_a_constant_is_handed_back_by_the_body() -> None:
    def f(a, b):
        e = jnp.tanh(a)
        return jax.lax.while_loop(lambda c: (c * e).sum() < 3, lambda c: stated(stated(e, "data", U), None, None), b)

    assert check(f, (None, MODEL))[0] == '[{"data"}, {}]'


def test_values_that_are_shard_alike_get_one_sharding() -> None:
    shard_alike = pytest.importorskip("jax.experimental.shard_alike", reason="not in JAX 0.12").shard_alike
    ours = check(lambda a, b: shard_alike(jnp.tanh(a), jnp.sin(b)), (DATA, None))
    assert ours[1] == '[{"data"}, {}]'


def test_a_reshard_that_differentiation_leaves_behind_does_nothing() -> None:
    def f(a, b):
        return jax.grad(lambda p: jnp.tanh(p + stated(b, "data", None)).sum())(a)

    assert "reshard" in str(jax.make_jaxpr(f)(jnp.ones(SQUARE), jnp.ones(SQUARE)))
    assert check(f, (None, None))[0] == '[{"data"}, {}]'


def test_the_path_of_an_axis_leads_through_a_scan_by_its_values() -> None:
    def f(a, xs):
        return jax.lax.scan(lambda c, x: (jnp.tanh(c @ x), c + x), a, xs)

    shapes = (jax.ShapeDtypeStruct(s, "float32") for s in (SQUARE, STACK))
    program = trace(f, *shapes).program
    found = propagate(program, MESH, {program.body.args[1]: '[{?}, {?}, {"model", ?}]'}, trace=True)
    assert found.provenance is not None
    (axis,) = found.provenance[program.body.results[1]]
    assert axis.origin == program.body.args[1]
    assert all(hop.source >= 0 and hop.value >= 0 for hop in axis.path)


def test_every_value_in_a_scan_has_a_sharding() -> None:
    def f(a, xs):
        return jax.lax.scan(lambda c, x: (jnp.tanh(c @ x), c + x), a, xs)

    shapes = (jax.ShapeDtypeStruct(s, "float32") for s in (SQUARE, STACK))
    program = trace(f, *shapes).program
    found = propagate(program, MESH, {program.body.args[1]: '[{?}, {?}, {"model", ?}]'})
    (scan,) = program.body.ops
    (body,) = scan.regions
    assert {str(found.values[v]) for v in (*body.args[1:], *body.results)} == {'[{?}, {"model", ?}]'}


def test_the_axes_of_a_constant_lead_back_to_the_constraint_that_binds_it() -> None:
    def f(a):
        return a, stated(jnp.arange(64.0).reshape(SQUARE), "data", None)

    program = trace(f, jax.ShapeDtypeStruct(SQUARE, "float32")).program
    found = propagate(program, MESH, {}, trace=True)
    assert found.provenance is not None
    result = program.body.results[1]
    (constraint,) = [op for op in program.body.ops if op.results == (result,)]
    for value in (constraint.operands[0], result):
        (axis,) = found.provenance[value]
        assert (str(axis.axis), axis.origin) == ('"data"', result)
