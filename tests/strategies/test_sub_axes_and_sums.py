"""Which axes are split for a program, and which of its values can be partial sums."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct, lax
from plan_cases import accumulated, atoms, f32, ops_of, program_of

from autoshard.errors import ShardingError
from autoshard.placements.atoms import choose_atoms
from autoshard.placements.partial import PartialReach
from autoshard.program.program import Program
from autoshard.sharding.mesh import Mesh


def heads(x: Any, w: Any) -> Any:
    return jnp.einsum("btd,dhk->bthk", x, w)


def test_an_axis_of_16_is_split_for_8_heads() -> None:
    program = program_of(heads, f32(32, 16, 64), f32(64, 8, 64))
    assert choose_atoms(program, Mesh.from_dict({"x": 16})).names == ("x:(1)8", "x:(8)2")


def test_an_axis_that_divides_everything_stays_whole() -> None:
    program = program_of(heads, f32(32, 16, 64), f32(64, 8, 64))
    assert choose_atoms(program, Mesh.from_dict({"x": 8})).names == ("x",)


def test_only_the_axes_that_need_it_are_split() -> None:
    program = program_of(heads, f32(32, 16, 64), f32(64, 8, 64))
    assert choose_atoms(program, Mesh.from_dict({"a": 4, "x": 16})).names == ("a", "x:(1)8", "x:(8)2")


def test_stated_sub_axes_are_taken_as_they_are() -> None:
    program = program_of(heads, f32(32, 16, 64), f32(64, 8, 64))
    assert choose_atoms(program, Mesh.from_dict({"x": 16}), {"x": (4, 4)}).names == ("x:(1)4", "x:(4)4")
    assert choose_atoms(program, Mesh.from_dict({"x": 16}), {"x": (16,)}).names == ("x",)


def test_stated_sub_axes_must_make_up_the_axis() -> None:
    program = program_of(heads, f32(32, 16, 64), f32(64, 8, 64))
    with pytest.raises(ShardingError, match='axis "x" of size 16 cannot be split into'):
        choose_atoms(program, Mesh.from_dict({"x": 16}), {"x": (3, 5)})


# -- partial sums --------------------------------------------------------------------------------------------------


def reach(program: Program, kind: str, axes: dict[str, int] | None = None) -> set[int]:
    """Atoms over which the first result of the last op of a kind can be a partial sum."""
    mesh = atoms(axes or {"x": 2})
    return set(PartialReach(program, mesh).get(ops_of(program, kind)[-1].results[0]))


M = f32(4, 4)


def test_a_matmul_is_where_partial_sums_begin() -> None:
    assert reach(program_of(lambda x, w: x @ w, M, M), "dot_general") == {0}


def test_an_axis_that_does_not_divide_the_sum_leaves_none() -> None:
    program = program_of(lambda x, w: x @ w, f32(4, 6), f32(6, 4))
    assert reach(program, "dot_general", {"x": 4}) == set()
    assert reach(program, "dot_general", {"x": 4, "y": 2}) == {1}


@pytest.mark.parametrize(
    ("f", "kind"),
    [
        (lambda p, x: p.astype(jnp.bfloat16), "convert_element_type"),
        (lambda p, x: p.T, "transpose"),
        (lambda p, x: p * x, "mul"),
        (lambda p, x: p * 2.0, "mul"),
        (lambda p, x: -p, "neg"),
        (lambda p, x: p + p, "add"),
        (lambda p, x: p.reshape(2, 8), "reshape"),
        (lambda p, x: p.sum(axis=0), "reduce_sum"),
        (lambda p, x: p @ x, "dot_general"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_linear_ops_pass_partial_sums_on(f: Any, kind: str) -> None:
    assert reach(program_of(lambda a, b, x: f(a @ b, x), M, M, M), kind) == {0}


@pytest.mark.parametrize(
    ("f", "kind"),
    [
        (lambda p, x: jnp.tanh(p), "tanh"),
        (lambda p, x: jnp.maximum(p, x), "max"),
        (lambda p, x: p + 1.0, "add"),  # the scalar would be added once for each device
        (lambda p, x: p + x, "add"),  # an input is never a partial sum
        (lambda p, x: x / p, "div"),
    ],
    ids=["tanh", "max", "add a scalar", "add a whole tensor", "divide by"],
)
def test_other_ops_end_partial_sums(f: Any, kind: str) -> None:
    assert reach(program_of(lambda a, b, x: f(a @ b, x), M, M, M), kind) == set()


def test_a_product_of_two_partial_sums_is_offered_for_one_side_at_a_time() -> None:
    program = program_of(lambda a, b: (a @ b) * (b @ a), M, M)
    (mul,) = ops_of(program, "mul")
    assert PartialReach(program, atoms({"x": 2})).of(mul).passes == ((0,), (0,))


def test_integers_may_be_partial_sums_and_booleans_may_not() -> None:
    integers = ShapeDtypeStruct((4, 4), jnp.int32)
    assert reach(program_of(lambda x: x.sum(axis=0), integers), "reduce_sum") == {0}
    assert reach(program_of(lambda x: (x > 0).any(axis=0), M), "reduce_or") == set()


def test_zeros_are_partial_sums_over_every_axis() -> None:
    def f(x: Any) -> Any:
        return jnp.zeros((4, 4)) + x @ x

    assert reach(program_of(f, M), "add", {"x": 2, "y": 2}) == {0, 1}


def test_a_carry_that_adds_up_a_gradient_may_stay_unreduced_over_the_loop() -> None:
    program = program_of(accumulated, f32(8, 8), f32(3, 4, 8))
    found = PartialReach(program, atoms({"x": 2}))
    (scan,) = ops_of(program, "scan")
    carry = scan.regions[0].args[scan.attrs["num_consts"]]
    assert found.get(carry) == found.get(scan.results[0]) == {0}


def test_a_carry_that_is_not_only_added_to_is_never_a_partial_sum() -> None:
    def f(w: Any, x: Any) -> Any:
        return lax.scan(lambda c, xk: (jnp.tanh(c) + xk @ w, None), jnp.zeros((4, 4)), x)[0]

    program = program_of(f, M, f32(3, 4, 4))
    (scan,) = ops_of(program, "scan")
    assert PartialReach(program, atoms({"x": 2})).get(scan.results[0]) == frozenset()


def test_stacked_results_carry_partial_sums_out_of_a_loop() -> None:
    """Gradients of stacked weights leave the backward loop before they are reduced."""

    def loss(w: Any, x: Any) -> Any:
        return lax.scan(lambda c, wk: (jnp.tanh(c @ wk), None), x, w)[0].sum()

    program = program_of(jax.grad(loss), f32(3, 4, 4), f32(4, 4))
    backward = ops_of(program, "scan")[-1]
    found = PartialReach(program, atoms({"x": 2}))
    stacked = [r for r in backward.results if program.type_of(r).shape == (3, 4, 4)]
    assert stacked and all(found.get(r) == {0} for r in stacked)


def test_inputs_are_never_partial_sums() -> None:
    program = program_of(lambda x, w: (x @ w) * x, M, M)
    found = PartialReach(program, atoms({"x": 2}))
    assert all(found.get(v) == frozenset() for v in program.body.args)
