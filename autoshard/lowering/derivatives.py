"""Derivatives of a lowered function: those of the function that was traced.

A program has the user's own derivative rules (`custom_jvp`, `custom_vjp`) inlined, so differentiating the program would
give other derivatives: `relu` would be a maximum, with another derivative at 0. Derivatives of a lowered function are
therefore those of the user's function, with arguments and results in the plan's shardings; inside of it XLA's
partitioner decides. To have a backward pass planned too, plan a function that computes it.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import tree_util


def with_derivatives(
    fn: Callable[..., Any], function: Callable[..., Any], in_shardings: Any, out_shardings: Any
) -> Callable[..., Any]:
    """`fn` with the derivatives of `function`, forward and backward. Both compute the same on global arrays.

    in_shardings, out_shardings: of both functions, as pytrees like the arguments and the result.
    """
    wrapped: Any = jax.custom_jvp(fn)

    def placed(*arguments: Any) -> Any:
        return _constrained(function(*_constrained(arguments, in_shardings)), out_shardings)

    @wrapped.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        return jax.jvp(placed, primals, tangents)

    return wrapped


def _constrained(tree: Any, shardings: Any) -> Any:
    return tree_util.tree_map(jax.lax.with_sharding_constraint, tree, shardings)
