"""Random small scans: their carries are of kinds that are drawn, so that what they are is known beforehand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

WIDTH = 4


def _all(value: float) -> Any:
    return np.full(WIDTH, value, np.float32)


# name -> (start, next from the carry, the iteration's own value and what others may read)
CARRIES: dict[str, tuple[Any, Callable[..., Any]]] = {
    "untouched": (_all(0.5), lambda c, own, read: c),
    "counter": (np.int32(3), lambda c, own, read: c + 5),
    "backwards": (np.int32(100), lambda c, own, read: c - 2),
    "sum": (_all(2.0), lambda c, own, read: c + own),
    "sum from zero": (np.zeros(WIDTH, np.float32), lambda c, own, read: own + c),
    "difference": (_all(2.0), lambda c, own, read: c - own - read),
    "integers": (np.int32(7), lambda c, own, read: c + own.sum().astype(jnp.int32)),
    "maximum": (_all(0.1), lambda c, own, read: jnp.maximum(c, own)),
    "minimum": (_all(0.1), lambda c, own, read: jnp.minimum(jnp.minimum(own, c), read)),
    "placed": (
        _all(1.0),
        lambda c, own, read: c.at[own.sum().astype(jnp.int32) % WIDTH].add(own[0]),
    ),
    "called": (
        _all(1.0),
        lambda c, own, read: jax.checkpoint(lambda a, b: a + jnp.tanh(b))(c, own),
    ),
    "inner": (
        _all(1.0),
        lambda c, own, read: jax.lax.scan(lambda s, y: (s + y * own, None), c, jnp.arange(3.0))[0],
    ),
}
"""Carries that let iterations be independent."""

CHAINS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "recurrent": (_all(2.0), lambda c, own, read: jnp.tanh(c + own)),
    "doubled": (_all(0.1), lambda c, own, read: c + c + own),
    "growing": (_all(1.0), lambda c, own, read: c * own),
    "mixed": (_all(1.0), lambda c, own, read: jnp.maximum(c + own, read)),
    "inner recurrent": (
        _all(1.0),
        lambda c, own, read: jax.lax.scan(lambda s, y: (jnp.sin(s) + y * own, None), c, jnp.arange(3.0))[0],
    ),
}
"""Carries by which every iteration waits for the one before."""


@dataclass(frozen=True)
class Drawn:
    """A loop: `f(w, xs)`, and whether its iterations are independent."""

    names: tuple[str, ...]
    length: int
    reverse: bool
    independent: bool

    def f(self, w: Any, xs: Any) -> Any:
        kinds = {**CARRIES, **CHAINS}

        def body(carry: Any, x: Any) -> Any:
            read = w[:, 0]
            for name, c in zip(self.names, carry, strict=True):
                if name in ("untouched", "counter", "backwards"):
                    read = read + jnp.sin(c * 1.0)
            own = jnp.tanh(x @ w) + read
            return tuple(kinds[n][1](c, own, read) for n, c in zip(self.names, carry, strict=True)), own * 2

        start = tuple(kinds[n][0] for n in self.names)
        return jax.lax.scan(body, start, xs, reverse=self.reverse)

    def arguments(self) -> tuple[Any, Any]:
        rng = np.random.default_rng(self.length)
        return (
            rng.standard_normal((WIDTH, WIDTH), np.float32),
            rng.standard_normal((self.length, WIDTH), np.float32),
        )


@st.composite
def loops(draw: st.DrawFn) -> Drawn:
    """A loop with up to four carries, in a third of the cases one of them a chain."""
    names = draw(st.lists(st.sampled_from(sorted(CARRIES)), max_size=3))
    independent = draw(st.integers(0, 2)) > 0
    if not independent:
        names.insert(draw(st.integers(0, len(names))), draw(st.sampled_from(sorted(CHAINS))))
    return Drawn(tuple(names), draw(st.sampled_from([2, 3, 4, 6, 12])), draw(st.booleans()), independent)
