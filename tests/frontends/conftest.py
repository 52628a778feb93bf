"""What the front-end tests share: running a function and its program on the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autoshard.frontends.jax.function import trace
from autoshard.frontends.jax.interpret import evaluate


def _number(rng, x):
    dtype = x.dtype
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return x
    if jnp.issubdtype(dtype, np.floating):
        return jnp.asarray(rng.normal(size=x.shape) * 0.5, dtype)
    return jnp.asarray(rng.integers(0, 4, size=x.shape), dtype)


@pytest.fixture
def same_values():
    """Trace `f` on the types of `args`, run both on numbers, compare every output; returns the trace."""

    def check(f, *args, **options):
        traced = trace(f, *args, **options)
        rng = np.random.default_rng(0)
        real = jax.tree.map(lambda x: _number(rng, x) if isinstance(x, jax.ShapeDtypeStruct) else x, args)
        want, tree = jax.tree.flatten(jax.jit(f)(*real))
        got = jax.jit(lambda leaves: evaluate(traced, *leaves))(jax.tree.leaves(real))
        assert traced.out_tree == tree
        assert len(got) == len(want)
        for name, a, b in zip(traced.program.output_names, got, want, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), name
            if jnp.issubdtype(a.dtype, jax.dtypes.extended):
                a, b = jax.random.key_data(a), jax.random.key_data(b)
            np.testing.assert_allclose(
                np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-5, atol=1e-6, err_msg=name
            )
        return traced

    return check
