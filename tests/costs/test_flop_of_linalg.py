"""FLOP of factorisations and solves against the textbook (Golub and Van Loan, Matrix Computations)."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import ShapeDtypeStruct
from jax.lax import linalg
from plan_cases import f32, ops_of, program_of

import autoshard
from autoshard.costs.work import local_flops, local_sizes
from autoshard.verify import check_plan

Function = Callable[..., Any]

FACTORISATIONS: dict[str, Function] = {
    "cholesky": linalg.cholesky,
    "eig": linalg.eig,
    "eigh": linalg.eigh,
    "hessenberg": linalg.hessenberg,
    "householder_product": lambda a: linalg.householder_product(a, a[..., 0]),
    "lu": linalg.lu,
    "qr": linalg.qr,
    "schur": linalg.schur,
    "svd": linalg.svd,
    "tridiagonal": linalg.tridiagonal,
}


def flop(kind: str, function: Function, *specs: Any) -> float:
    program = program_of(function, *specs)
    (op,) = ops_of(program, kind)
    assert op.rule is not None
    sizes = local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64))
    return float(local_flops(op, program, sizes)[0])


@pytest.mark.parametrize("kind", FACTORISATIONS)
def test_a_batch_of_matrices_is_as_many_times_the_work_of_one(kind: str) -> None:
    function = FACTORISATIONS[kind]
    assert flop(kind, function, f32(5, 3, 16, 16)) == pytest.approx(15 * flop(kind, function, f32(16, 16)))


@pytest.mark.parametrize("kind", FACTORISATIONS)
def test_work_grows_with_the_cube_of_the_side(kind: str) -> None:
    function = FACTORISATIONS[kind]
    assert flop(kind, function, f32(32, 32)) == pytest.approx(8 * flop(kind, function, f32(16, 16)))


@pytest.mark.parametrize("kind", FACTORISATIONS)
def test_complex_matrices_are_four_times_the_work_of_real_ones(kind: str) -> None:
    function, matrix = FACTORISATIONS[kind], ShapeDtypeStruct((16, 16), jnp.complex64)
    assert flop(kind, function, matrix) == pytest.approx(4 * flop(kind, function, f32(16, 16)))


@pytest.mark.parametrize(
    ("kind", "cubes"),
    [("cholesky", 1 / 3), ("lu", 2 / 3), ("qr", 8 / 3), ("householder_product", 4 / 3), ("eigh", 9), ("svd", 22)],
)
def test_a_square_matrix_takes_the_leading_term(kind: str, cubes: float) -> None:
    assert flop(kind, FACTORISATIONS[kind], f32(12, 12)) == pytest.approx(cubes * 12**3)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_elimination_takes_two_flop_for_each_element_below_and_right_of_each_pivot(m: int, n: int, more: bool) -> None:
    found = flop("lu", linalg.lu, f32(*([2] if more else []), m, n)) / (2 if more else 1)
    told = sum(2 * (m - k) * (n - k) for k in range(1, min(m, n) + 1))
    assert found == pytest.approx(told, abs=2 * m * n)  # beside the leading term


def test_a_tall_qr_forms_a_whole_q_where_it_is_asked_to() -> None:
    m, n = 40, 10
    thin, full = (
        flop("qr", lambda a, whole=whole: linalg.qr(a, full_matrices=whole), f32(m, n)) for whole in (False, True)
    )
    assert thin == pytest.approx(2 * (2 * m * n**2 - 2 / 3 * n**3))
    assert full == pytest.approx(2 * m * n**2 - 2 / 3 * n**3 + 4 * (m**2 * n - m * n**2 + n**3 / 3))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(2, 12), st.booleans())
def test_a_triangular_solve_is_half_of_a_matmul_with_its_right_hand_sides(n: int, columns: int, left: bool) -> None:
    sides = f32(n, columns) if left else f32(columns, n)
    found = flop("triangular_solve", lambda a, b: linalg.triangular_solve(a, b, left_side=left), f32(n, n), sides)
    assert found == n * n * columns


@pytest.mark.parametrize("kind", FACTORISATIONS)
def test_a_plan_with_a_factorisation_verifies(kind: str) -> None:
    plan = autoshard.plan(FACTORISATIONS[kind], f32(4, 16, 16), mesh={"x": 2}, hardware="tpu_v5e")
    assert check_plan(plan.to_dict()).findings == ()


def test_a_plan_with_a_triangular_solve_verifies() -> None:
    plan = autoshard.plan(linalg.triangular_solve, f32(4, 16, 16), f32(4, 16, 16), mesh={"x": 2}, hardware="tpu_v5e")
    assert check_plan(plan.to_dict()).findings == ()
