"""The list of programs, and what each of them is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Made:
    """A step of a loop: ``step(*state, *batch)`` returns the next state, one result for each part of it, and whatever
    else it tells.

    carry: what `autoshard.plan` is told of the state, where each part of it is a single array; found otherwise.
    """

    step: Callable[..., Any]
    state: tuple[Any, ...]
    batch: tuple[Any, ...] = ()
    carry: dict[str, str] | None = None


@dataclass(frozen=True)
class Listed:
    """A program by others.

    packages: what it is made from, as pip names it. rows: arguments whose first dimension is pinned to the axis "data".
    """

    name: str
    packages: tuple[str, ...]
    make: Callable[[], Made]
    rows: tuple[str, ...]
    words: str


PROGRAMS: dict[str, Listed] = {}
"""By name, in the order of the files."""


def program(*packages: str, rows: tuple[str, ...] = ()) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Put a function that makes a program on the list. Packages are imported inside of it, so that others run without
    them.
    """

    def listed(make: Callable[[], Made]) -> Callable[[], Made]:
        words = (make.__doc__ or "").strip().splitlines()[0]
        PROGRAMS[make.__name__] = Listed(make.__name__, packages, make, rows, words)
        return make

    return listed


def f32(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def ids(high: int, *shape: int) -> jax.Array:
    return jnp.asarray(RNG.integers(0, high, shape), jnp.int32)


def warm(state: Any) -> Any:
    """Optimizer moments that are not zero: from zero, Adam's first step is the sign of the gradient, decided by
    rounding where it vanishes.
    """
    return jax.tree.map(
        lambda x: x if not jnp.issubdtype(x.dtype, jnp.floating) else jnp.full(x.shape, 0.01, x.dtype), state
    )


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean over all tokens, by optax."""
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean()


def plain() -> Any:
    """SGD with momentum: an optimizer of few ops, where the model has many."""
    import optax

    return optax.sgd(0.05, momentum=0.9)


def trained(loss: Callable[..., Any], tx: Any) -> Callable[..., Any]:
    """The train step of ``loss(params, *batch)`` with an optimizer of optax."""
    import optax

    def step(params: Any, opt: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, value

    return step
