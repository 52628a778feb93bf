"""Equations rewritten as others with the same meaning."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jax_core


@cache
def barrier_primitive() -> Any:
    """The primitive of `jax.lax.optimization_barrier`, which JAX does not export."""
    return jax.make_jaxpr(jax.lax.optimization_barrier)(0.0).jaxpr.eqns[0].primitive


def with_scalar_predicate(eqn: Any) -> Any:
    """A `while` with a batched predicate (which `jax.vmap` makes) as a loop with a scalar predicate.

    The loop runs while any predicate holds; elements whose own predicate is false stay as they are.
    """
    n = eqn.params["cond_nconsts"]
    first = n + eqn.params["body_nconsts"]
    cond_fun = jax_core.jaxpr_as_fun(eqn.params["cond_jaxpr"])
    body_fun = jax_core.jaxpr_as_fun(eqn.params["body_jaxpr"])

    def loop(*operands: Any) -> list[Any]:
        for_cond, for_body, init = operands[:n], operands[n:first], operands[first:]

        def body(carry: Any) -> Any:
            (go_on,) = cond_fun(*for_cond, *carry)
            after = body_fun(*for_body, *carry)
            wide = [jax.lax.broadcast_in_dim(go_on, jnp.shape(c), range(go_on.ndim)) for c in carry]
            return tuple(jax.lax.select(w, new, old) for w, new, old in zip(wide, after, carry, strict=True))

        return list(jax.lax.while_loop(lambda c: jnp.any(cond_fun(*for_cond, *c)[0]), body, tuple(init)))

    return jax.make_jaxpr(loop)(*[jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars])
