"""Arguments of a JAX function with one dimension of some leaves resized."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax


def resized(specs: Sequence[Any], dims: Mapping[int, tuple[int, int]]) -> tuple[Any, ...]:
    """`specs` with other sizes: leaf k, counted over all arguments, has size `dims[k][1]` along dimension
    `dims[k][0]`.
    """
    leaves, tree = jax.tree_util.tree_flatten(tuple(specs))
    out = []
    for index, leaf in enumerate(leaves):
        if index in dims:
            dim, size = dims[index]
            shape = (*leaf.shape[:dim], size, *leaf.shape[dim + 1 :])
            leaf = jax.ShapeDtypeStruct(shape, leaf.dtype)
        out.append(leaf)
    return jax.tree_util.tree_unflatten(tree, out)
