"""Train steps of published packages at full size, abstract: nothing of them is allocated."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import jax

ROWS, LENGTH = 256, 4096
"""Sequences of a step and tokens of each: one sequence for a chip."""
DEVICES = 256
MESH = {"data": 16, "model": 16}


@dataclass(frozen=True)
class Step:
    """A train step, ``step(state, batch)``, whose first result is the state that the next step takes.

    stated: what the package itself says about where arguments and results lie on a mesh of its own, as `jax.jit` takes
    it; the shardings in the code of the step are of the same mesh. within: what is around its tracing. mesh: what is
    planned for; that of the package where its code has a `shard_map`.
    """

    step: Callable[..., Any]
    arguments: tuple[Any, ...]
    stated: Mapping[str, Any]
    within: Callable[[], AbstractContextManager[Any]]
    mesh: Mapping[str, int] = field(default_factory=lambda: MESH)


@dataclass(frozen=True)
class Listed:
    """packages: as pip names them. make: the step; it imports them."""

    packages: tuple[str, ...]
    make: Callable[[], Step]
    words: str


STEPS: dict[str, Listed] = {}
"""By name, in the order of the table."""


def listed(*packages: str) -> Callable[[Callable[[], Step]], Callable[[], Step]]:
    """Put a function that makes a step on the list."""

    def put(make: Callable[[], Step]) -> Callable[[], Step]:
        STEPS[make.__name__] = Listed(packages, make, (make.__doc__ or "").strip().splitlines()[0])
        return make

    return put


def bare(tree: Any) -> Any:
    """Shapes and types alone, without the shardings that abstract arrays of the packages have."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def mesh_of(**sizes: int) -> jax.sharding.Mesh:
    """A mesh over the simulated devices, on which a package states its shardings."""
    import numpy as np

    return jax.sharding.Mesh(np.array(jax.devices()).reshape(tuple(sizes.values())), tuple(sizes))
