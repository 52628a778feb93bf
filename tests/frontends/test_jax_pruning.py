"""Dead code goes, in bodies too; results that are all zeros are marked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autoshard.frontends.jax.function import trace

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)
WS = jax.ShapeDtypeStruct((3, 8, 8), jnp.float32)


def only(program, kind):
    (found,) = [op for op in program.ops.values() if op.kind == kind]
    return found


def kinds(block):
    return [op.kind for op in block.ops]


def test_ops_without_used_results_are_removed_and_inputs_stay(same_values):
    table = np.ones(8, np.float32)

    def f(x, unused):
        jnp.exp(x) @ jnp.ones((8, 2))
        _ = unused * table
        return jnp.sin(x)

    traced = same_values(f, X, X)
    assert kinds(traced.program.body) == ["sin"]
    assert len(traced.program.body.args) == 2
    assert traced.consts == ()


def test_dead_stacked_results_carries_and_operands_of_a_scan_go(same_values):
    def f(x, ws, bs):
        def body(carry, wb):
            c, counter, unused = carry
            w, b = wb
            return (jnp.tanh(c @ w), counter + 1, unused * b), (c, counter)

        (y, _, _), (saved, _) = jax.lax.scan(body, (x, 0, 1.0), (ws, bs))
        return y, saved

    traced = same_values(f, X, WS, jax.ShapeDtypeStruct((3,), jnp.float32))
    op = only(traced.program, "scan")
    assert op.attrs["num_carry"] == 1
    assert len(op.operands) == 2 and len(op.results) == 2
    assert kinds(op.regions[0]) == ["dot_general", "tanh"]


def test_a_carry_that_another_carry_reads_stays(same_values):
    def f(x, ws):
        def body(carry, w):
            a, b, c = carry  # a needs b, b needs c
            return (a + b, b * c, jnp.tanh(c @ w)), None

        return jax.lax.scan(body, (x, x, x), ws)[0][0]

    op = only(same_values(f, X, WS).program, "scan")
    assert op.attrs["num_carry"] == 3


def test_a_whole_loop_goes_when_nothing_of_it_is_used(same_values):
    def f(x, ws):
        jax.lax.scan(lambda c, w: (c @ w, None), x, ws)
        jax.lax.while_loop(lambda c: jnp.sum(c) < 3, lambda c: c + 1, x)
        return x * 2

    assert kinds(same_values(f, X, WS).program.body) == ["mul"]


def test_while_keeps_what_its_condition_reads_and_drops_the_rest(same_values):
    def f(x):
        def body(c):
            i, y, dead = c
            return i + 1, y * 1.5, jnp.tanh(dead)

        return jax.lax.while_loop(lambda c: c[0] < 4, body, (0, x, x))[1]

    op = only(same_values(f, X).program, "while")
    assert len(op.operands) == len(op.results) == 2
    assert op.attrs["trips"] == 4
    assert kinds(op.regions[1]) == ["add", "mul"]


def test_unused_results_and_operands_of_a_cond_go(same_values):
    def f(i, x, y):
        return jax.lax.cond(i > 0, lambda a, b: (a * 2, b @ b.T), lambda a, b: (a, b @ a.T), x, y)[0]

    op = only(same_values(f, jax.ShapeDtypeStruct((), jnp.int32), X, X).program, "cond")
    assert len(op.operands) == 2 and len(op.results) == 1
    assert [kinds(b) for b in op.regions] == [[], ["mul"]]  # false, true


def test_dead_code_in_nested_loops(same_values):
    def f(x, ws):
        def outer(c, w):
            inner = jax.lax.fori_loop(0, 2, lambda i, s: (s[0] @ w, s[1] + s[0]), (c, c))
            return inner[0], inner[1]

        return jax.lax.scan(outer, x, ws)[0]

    program = same_values(f, X, WS).program
    outer = program.body.ops[0]
    assert len(outer.results) == 1
    assert kinds(outer.regions[0].ops[0].regions[0]) == ["dot_general"]


def marks(f, *specs):
    return [(op.kind, op.attrs.get("zero", False)) for op in trace(f, *specs).program.ops.values()]


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: x + jnp.zeros_like(x), [("broadcast_in_dim", True), ("add", False)]),
        (lambda x: x + jnp.ones_like(x), [("broadcast_in_dim", False), ("add", False)]),
        (
            lambda x: x + jnp.zeros((8, 4), jnp.bfloat16).T.astype(jnp.float32),
            [("broadcast_in_dim", True), ("transpose", True), ("convert_element_type", True), ("add", False)],
        ),
        (
            lambda x: x + (-jnp.zeros(32)).reshape(4, 8),
            [("broadcast_in_dim", True), ("neg", True), ("reshape", True), ("add", False)],
        ),
        (
            lambda x: x * (x * jnp.zeros_like(x)),  # 0 * inf is not 0
            [("broadcast_in_dim", True), ("mul", False), ("mul", False)],
        ),
        (
            lambda x: jnp.where(jnp.zeros((4, 8), bool), x, 1.0),
            [
                ("broadcast_in_dim", False),
                ("convert_element_type", False),
                ("broadcast_in_dim", False),
                ("select_n", False),
            ],
        ),
    ],
)
def test_zeros_are_marked_where_they_are_certain(f, expected):
    assert marks(f, X) == expected


def test_zeros_are_marked_inside_of_loops():
    program = trace(lambda x, ws: jax.lax.scan(lambda c, w: (c @ w + jnp.zeros_like(c), None), x, ws)[0], X, WS).program
    assert [op.kind for op in program.ops.values() if op.attrs.get("zero")] == ["broadcast_in_dim"]


def test_optimizer_moments_that_start_from_zero_are_marked():
    import optax

    params = {"w": X}
    program = trace(lambda p: optax.adam(1e-3).init(p), params).program
    moments = [op for op in program.ops.values() if program.type_of(op.results[0]).shape == (4, 8)]
    assert moments and all(op.attrs["zero"] for op in moments)
