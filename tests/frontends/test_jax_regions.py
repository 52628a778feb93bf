"""Loops, branches, remat and shard_map become regions and barriers that compute the same values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from autoshard.frontends.jax.function import trace

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)
WS = jax.ShapeDtypeStruct((3, 8, 8), jnp.float32)
N = jax.ShapeDtypeStruct((), jnp.int32)


def only(program, kind):
    found = [op for op in program.ops.values() if op.kind == kind]
    assert len(found) == 1, [op.kind for op in program.ops.values()]
    return found[0]


def shapes(program, values):
    return [program.type_of(v).shape for v in values]


# complexity: one claim after the other about every edge of a region
def check_edges(program):
    """Region arguments and results have the types of what they are tied to (docs/architecture.md)."""
    types = program.type_of
    for op in program.ops.values():
        if op.kind == "scan":
            n, k = op.attrs["num_consts"], op.attrs["num_carry"]
            (body,) = op.regions
            assert len(body.args) == len(op.operands) and len(body.results) == len(op.results)
            for i, (a, o) in enumerate(zip(body.args, op.operands, strict=True)):
                stacked = (op.attrs["length"],) if i >= n + k else ()
                assert types(o).shape == stacked + types(a).shape
            for i, (r, o) in enumerate(zip(body.results, op.results, strict=True)):
                assert types(o).shape == ((op.attrs["length"],) if i >= k else ()) + types(r).shape
        elif op.kind == "while":
            n, b = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
            cond, body = op.regions
            carries = [types(o) for o in op.operands[n + b :]]
            assert [types(a) for a in cond.args] == [types(o) for o in op.operands[:n]] + carries
            assert [types(a) for a in body.args] == [types(o) for o in op.operands[n : n + b]] + carries
            assert [types(r) for r in body.results] == carries == [types(r) for r in op.results]
            assert [str(types(r)) for r in cond.results] == ["bool[]"]
        elif op.kind == "cond":
            for branch in op.regions:
                assert [types(a) for a in branch.args] == [types(o) for o in op.operands[1:]]
                assert [types(r) for r in branch.results] == [types(r) for r in op.results]
        elif op.kind != "shard_map":
            assert op.rule is not None and not op.regions
            op.rule.check([types(o).shape for o in op.operands], [types(r).shape for r in op.results])


def test_scan_has_consts_carries_and_stacked_operands(same_values):
    def f(x, ws, scale):
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w) * scale, c.sum(0)), x, ws, reverse=True)

    traced = same_values(f, X, WS, jax.ShapeDtypeStruct((8,), jnp.float32))
    op = only(traced.program, "scan")
    assert op.attrs == {"num_consts": 1, "num_carry": 1, "length": 3, "reverse": True}
    assert shapes(traced.program, op.operands) == [(8,), (4, 8), (3, 8, 8)]
    assert shapes(traced.program, op.results) == [(4, 8), (3, 8)]
    assert op.rule is None
    check_edges(traced.program)


def test_a_body_may_hand_back_arguments_literals_and_repeated_values(same_values):
    def f(x):
        return jax.lax.scan(lambda c, _: ((c[1], c[0], 1.0), (c[0], 2.0, c[0])), (x, x + 1, 0.0), None, length=3)

    check_edges(same_values(f, X).program)


def test_gradient_of_scanned_remat_layers_has_one_barrier_per_recomputation(same_values):
    def loss(params, x):
        def layer(c, p):
            h = jax.nn.silu(c @ p["up"]) @ p["down"]
            return c + h / jnp.sqrt(jnp.mean(h**2) + 1e-5), None

        return jnp.mean(jax.lax.scan(jax.checkpoint(layer), x, params)[0] ** 2)

    params = {"up": WS, "down": WS}
    program = same_values(jax.value_and_grad(loss), params, X).program
    check_edges(program)
    scans = [op for op in program.body.ops if op.kind == "scan"]
    assert [op.attrs["reverse"] for op in scans] == [False, True]
    barrier = [op for op in scans[1].regions[0].ops if op.kind == "optimization_barrier"]
    assert {op.attrs["barrier_group"] for op in barrier} == {0}
    assert [op.id for op in barrier] == list(range(barrier[0].id, barrier[0].id + len(barrier)))
    # what enters the recomputation: layer input, both weights, and the incoming gradient
    assert sorted(shapes(program, [op.results[0] for op in barrier])) == [(4, 8), (4, 8), (8, 8), (8, 8)]


def test_remat_without_cse_prevention_or_differentiation_has_no_barrier(same_values):
    def f(x):
        return jnp.sum(jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)), prevent_cse=False)(x))

    for g in (jax.grad(f), jax.checkpoint(lambda y: jnp.sin(y))):
        kinds = [op.kind for op in same_values(g, X).program.ops.values()]
        assert "optimization_barrier" not in kinds
        assert "sin" in kinds or "cos" in kinds


def test_a_users_own_barrier_becomes_one_group_of_unary_ops(same_values):
    def f(x, y):
        a, b, c = jax.lax.optimization_barrier((x, y + 1, 2.0))
        d = jax.lax.optimization_barrier(a)
        return a, b * c + d

    program = same_values(f, X, X).program
    barrier = [(op.kind, op.attrs["barrier_group"]) for op in program.body.ops if "barrier_group" in op.attrs]
    assert barrier == [("optimization_barrier", 0)] * 2 + [("optimization_barrier", 1)]
    check_edges(program)


def test_while_keeps_condition_and_body_apart(same_values):
    def f(x, limit, w):
        return jax.lax.while_loop(lambda c: jnp.sum(c**2) < limit, lambda c: c * 1.5 + w, x)

    traced = same_values(f, X, jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((8,), jnp.float32))
    op = only(traced.program, "while")
    assert op.attrs == {"cond_nconsts": 1, "body_nconsts": 1, "trips": None}
    check_edges(traced.program)


@pytest.mark.parametrize(
    ("init", "cond", "body", "trips"),
    [
        (0, lambda i: i < 7, lambda i: i + 2, 4),
        (0, lambda i: jax.lax.gt(7, i), lambda i: 2 + i, 4),
        (0, lambda i: i <= 8, lambda i: i + 2, 5),
        (9, lambda i: i > 0, lambda i: i - 3, 3),
        (9, lambda i: i >= 0, lambda i: i - 3, 4),
        (0, lambda i: i != 6, lambda i: i + 3, 2),
        (5, lambda i: i < 5, lambda i: i + 1, 0),
        (jnp.int4(0), lambda i: i < 3, lambda i: i + 1, 3),
        (jnp.int4(0), lambda i: i < 7, lambda i: i + 5, None),  # 10 is no int4
        (0, lambda i: i < 7, lambda i: i * 2 + 1, None),  # not a constant step
        (1, lambda i: i % 4 < 3, lambda i: i + 1, None),  # not a comparison of the counter
    ],
)
def test_trips_of_a_counting_while_are_known(same_values, init, cond, body, trips):
    def f(x):
        return jax.lax.while_loop(lambda c: cond(c[0]), lambda c: (body(c[0]), c[1] + 1), (init, x))

    op = only(same_values(f, X).program, "while")
    assert op.attrs["trips"] == trips


def test_trips_follow_a_bound_that_is_carried_unchanged(same_values):
    def f(x):
        loop = jax.lax.while_loop(lambda c: c[0] < c[1], lambda c: (c[0] + 1, c[1], c[2] * 2), (0, 5, x))
        return loop[2]

    assert only(same_values(f, X).program, "while").attrs["trips"] == 5


def test_trips_are_unknown_when_a_bound_is_an_input_or_the_loop_never_ends(same_values):
    program = same_values(lambda x, n: jax.lax.fori_loop(0, n, lambda i, y: y * 2 + i, x), X, N).program
    assert only(program, "while").attrs["trips"] is None
    endless = trace(lambda x: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] - 1, c[1]), (0, x)), X).program
    assert only(endless, "while").attrs["trips"] is None


def test_a_while_with_one_predicate_per_row_stops_each_row_on_its_own(same_values):
    def f(x):
        return jax.vmap(lambda r: jax.lax.while_loop(lambda c: jnp.sum(c) < 10.0, lambda c: c * 1.5 + 1.0, r))(x)

    program = same_values(f, X).program
    check_edges(program)
    assert all("test_jax_regions.py" in op.source for op in program.ops.values())


def test_fori_loop_with_literal_bounds_is_a_scan_without_its_unused_counter(same_values):
    op = only(same_values(lambda x: jax.lax.fori_loop(2, 9, lambda i, y: y * 1.1, x), X).program, "scan")
    assert (op.attrs["length"], op.attrs["num_carry"]) == (7, 1)


def test_cond_has_one_region_per_branch(same_values):
    def f(index, x, y):
        return jax.lax.switch(index, [lambda a, b: a, lambda a, b: a @ b.T @ a, lambda a, b: b * 2.0], x, y)

    program = same_values(f, N, X, X).program
    op = only(program, "cond")
    assert len(op.regions) == 3
    check_edges(program)
    check_edges(same_values(lambda i, x: jax.lax.cond(i > 0, jnp.sin, jnp.cos, x), N, X).program)


def test_gradients_through_cond_and_nested_loops(same_values):
    def loss(x, ws, index):
        def layer(c, w):
            c = jax.lax.cond(index > 1, lambda y: jnp.tanh(y @ w), lambda y: y * 0.5, c)
            return jax.lax.fori_loop(0, 2, lambda i, y: y + jnp.sin(y) * i, c), jnp.sum(c)

        y, sums = jax.lax.scan(jax.checkpoint(layer), x, ws)
        return jnp.mean(y) + jnp.sum(sums)

    check_edges(same_values(jax.value_and_grad(loss, argnums=(0, 1)), X, WS, N).program)


def test_arrays_captured_inside_of_regions_arrive_as_operands(same_values):
    table = np.arange(8, dtype=np.float32)
    other = np.ones((4, 8), np.float32)

    def f(x, ws, index):
        y = jax.lax.scan(lambda c, w: (c @ w + table, None), x, ws)[0]
        y = jax.lax.while_loop(lambda c: jnp.sum(c * other) < 3.0, lambda c: c + table, y)
        y = jax.lax.cond(index > 0, lambda a: a + table, lambda a: a * other, y)
        return jax.jit(lambda a: a * table)(y)

    traced = same_values(f, X, WS, N)
    check_edges(traced.program)
    assert len(traced.consts) == 2


def mesh_2x2(axis_types=AxisType.Auto):
    return jax.make_mesh((2, 2), ("a", "b"), axis_types=(axis_types,) * 2)


def test_shard_map_is_a_region_over_local_types(same_values):
    mesh = mesh_2x2()

    @jax.shard_map(mesh=mesh, in_specs=(P("a", "b"), P("b")), out_specs=P("a"))
    def matmul(x, w):
        return jax.lax.psum(x @ w, "b")

    traced = same_values(lambda x, w: matmul(x, w) * 2, X, jax.ShapeDtypeStruct((8, 6), jnp.float32))
    op = only(traced.program, "shard_map")
    assert op.attrs == {
        "mesh_axes": (("a", 2), ("b", 2)),
        "in_names": ((("a",), ("b",)), (("b",), ())),
        "out_names": ((("a",), ()),),
    }
    assert shapes(traced.program, op.regions[0].args) == [(2, 4), (4, 6)]
    assert shapes(traced.program, op.results) == [(4, 6)]
    assert traced.program.warnings == ()  # nothing is planned inside, so an unknown collective is no news


def test_gradient_through_shard_map(same_values):
    mesh = mesh_2x2()
    f = jax.shard_map(lambda x: jnp.tanh(x) * 2, mesh=mesh, in_specs=P(("a", "b")), out_specs=P(("a", "b")))
    traced = same_values(jax.grad(lambda x: jnp.sum(f(x) ** 2)), X)
    assert [op.kind for op in traced.program.body.ops].count("shard_map") == 2


def test_a_partly_manual_shard_map_is_one_over_its_manual_axes(same_values):
    mesh = mesh_2x2()
    f = jax.shard_map(
        lambda x: x - jax.lax.pmean(x, "a"), mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"}
    )
    traced = same_values(lambda x: jax.grad(lambda y: (f(y) ** 2).sum())(x), X)
    maps = [op for op in traced.program.body.ops if op.kind == "shard_map"]
    assert maps
    assert {op.attrs["mesh_axes"] for op in maps} == {(("a", 2),)}
    assert any("leaves the axes ['b'] automatic" in line for line in traced.program.warnings)


def test_a_shard_map_inside_of_another_is_part_of_its_body():
    mesh = mesh_2x2()

    def inner(x):
        return jax.shard_map(lambda y: y * 2, in_specs=P("b"), out_specs=P("b"), axis_names={"b"})(x)

    f = jax.shard_map(inner, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
    (op,) = trace(f, X).program.body.ops
    assert op.attrs["mesh_axes"] == (("a", 2), ("b", 2))
    assert op.attrs["in_names"] == ((("a",), ()),)
    kinds = [inner.kind for inner in op.regions[0].ops]
    told = ["axis_index", "dynamic_slice", "all_gather"]
    assert [kind for kind in kinds if kind in told] == told
