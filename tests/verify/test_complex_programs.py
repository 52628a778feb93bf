"""Plans of complex programs are judged right: zeros that are pairs of numbers in plan.json are zeros."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autoshard

ASKED = {"mesh": {"data": 2, "model": 4}, "hardware": "tpu_v5e"}
X = jax.ShapeDtypeStruct((64, 64), jnp.float32)


def padded(x):
    return lax.pad(jnp.fft.fft(x), np.complex64(0), ((0, 64, 0), (0, 0, 0)))


def back(x):
    """The derivative of a slice of a transform pads with zeros."""
    return jax.vjp(lambda x: jnp.fft.fft(x)[:10], x)[1](jnp.ones((10, 64), jnp.complex64))[0]


@pytest.mark.parametrize("f", [padded, back, lambda x: jnp.fft.fft(x) + np.complex64(0)])
def test_a_plan_with_complex_zeros_verifies(f):
    assert autoshard.plan(f, X, **ASKED).verify(f, X, **ASKED).ok


def test_another_complex_number_is_no_zero():
    from autoshard.verify import check_plan

    data = autoshard.plan(padded, X, **ASKED).to_dict()
    (zero,) = [v for v in data["program"]["values"] if isinstance(v["literal"], dict)]
    assert zero["literal"] == {"complex": ["0.0", "0.0"]} and check_plan(data).ok
    zero["literal"] = {"complex": ["0.0", "1.0"]}
    assert any("pad is linear in operands" in str(finding) for finding in check_plan(data).findings)
