"""FLOP of convolutions and matmuls against XLA's own count of the same program, which leaves zeros out."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import ShapeDtypeStruct, lax
from plan_cases import program_of

from autoshard.costs.work import MATMUL_KINDS, local_flops, local_sizes


def ours(function: Any, *specs: Any) -> float:
    """FLOP of the program's matmuls and convolutions on one device."""
    program = program_of(function, *specs)
    total = 0.0
    for op, _ in program.walk():
        if op.kind in MATMUL_KINDS:
            assert op.rule is not None
            sizes = local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64))
            total += float(local_flops(op, program, sizes)[0])
    return total


def of_xla(function: Any, *specs: Any) -> float:
    """XLA's count; nothing is compiled."""
    return float(jax.jit(function).lower(*specs).cost_analysis()["flops"])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_convolutions_without_padding_have_the_flop_that_xla_counts(data: st.DataObject) -> None:
    """Strides, dilations of the input and of the window, and groups; one dimension, or two."""

    def drawn(most: int, name: str) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(1, most), label=f"{name} of {d}") for d in range(rank))

    rank = data.draw(st.sampled_from([1, 2]), label="rank")
    size, window, strides, near, far = (
        drawn(9, "size"),
        drawn(4, "window"),
        drawn(3, "stride"),
        drawn(3, "near"),
        drawn(3, "far"),
    )
    groups = data.draw(st.sampled_from([1, 2, 4]), label="groups")
    assume(all((n - 1) * d + 1 > (w - 1) * f for n, d, w, f in zip(size, near, window, far, strict=True)))
    letters = "HW"[:rank]
    names = (f"N{letters}C", f"{letters}IO", f"N{letters}C")

    def convolved(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, [(0, 0)] * rank, lhs_dilation=near, rhs_dilation=far, dimension_numbers=names,
            feature_group_count=groups,
        )  # fmt: skip

    specs = ShapeDtypeStruct((2, *size, 8), jnp.float32), ShapeDtypeStruct((*window, 8 // groups, 12), jnp.float32)
    assert ours(convolved, *specs) == of_xla(convolved, *specs)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_a_convolution_and_its_gradients_have_what_xla_counts_but_for_padding(stride: int, padding: str) -> None:
    def loss(x: Any, w: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=names).sum()

    specs = ShapeDtypeStruct((2, 60, 60, 8), jnp.float32), ShapeDtypeStruct((3, 3, 8, 16), jnp.float32)
    step = jax.grad(loss, argnums=(0, 1))
    assert ours(step, *specs) == pytest.approx(of_xla(step, *specs), rel=0.1)


@settings(max_examples=20, deadline=None)
@given(st.tuples(*[st.integers(1, 9)] * 4))
def test_batched_matmuls_have_the_flop_that_xla_counts(sizes: tuple[int, int, int, int]) -> None:
    b, m, k, n = sizes
    specs = ShapeDtypeStruct((b, m, k), jnp.float32), ShapeDtypeStruct((b, k, n), jnp.float32)
    assert ours(jnp.matmul, *specs) == of_xla(jnp.matmul, *specs)


OF_ONE = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i0e", "bessel_i1e", "cosh", "digamma", "erf_inv", "exp",
    "log", "sinh", "tanh",
)  # fmt: skip
OF_TWO = ("igamma", "igammac", "igamma_grad_a", "nextafter", "polygamma", "zeta")
FUNCTIONS = [*((name, 1) for name in OF_ONE), *((name, 2) for name in OF_TWO), ("betainc", 3)]


@pytest.mark.parametrize(("name", "operands"), FUNCTIONS)
def test_functions_of_elements_have_about_the_flop_of_what_xla_makes_of_them(name: str, operands: int) -> None:
    """Transcendentals, which XLA counts apart, are 8 FLOP each."""
    specs, function = [ShapeDtypeStruct((64, 64), jnp.float32)] * operands, getattr(lax, name)
    program = program_of(lambda *x: function(*x), *specs)
    ((op, _),) = program.walk()
    assert op.rule is not None
    found = local_flops(op, program, local_sizes(op.rule, np.ones((1, len(op.rule.factor_sizes)), np.int64)))
    counted = jax.jit(function).lower(*specs).cost_analysis()
    assert counted is not None
    told = counted.get("flops", 0.0) + 8 * counted.get("transcendentals", 0.0)
    assert told / 4 < float(found[0]) < told * 2
