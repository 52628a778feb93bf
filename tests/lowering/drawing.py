"""A random program while it is drawn: the values that are known, and the table of ops.

Which ops there are: `drawn_arithmetic` and `drawn_moves`, in this order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np

SIZES = (2, 3, 4, 5, 6, 7, 8, 8, 12, 12, 13, 16, 24)
LARGEST = 6000
"""Elements of the largest value of a program."""


@dataclass(frozen=True)
class Known:
    """A value of the program being drawn; exact: the same bits whatever the plan."""

    x: Any
    exact: bool

    @property
    def is_float(self) -> bool:
        return bool(jnp.issubdtype(self.x.dtype, jnp.floating))

    @property
    def rank(self) -> int:
        return int(self.x.ndim)


class Drawing:
    """One program being drawn: its random numbers, and the values there are."""

    def __init__(self, seed: int, values: list[Known], key: Any, differentiated: bool) -> None:
        self.random = Random(seed)
        self.known = values
        self.key = key
        self.differentiated = differentiated

    # -- picking -----------------------------------------------------------------------------------------------

    def pick(self, test: Callable[[Known], bool] = lambda k: True) -> Known:
        """A value that passes the test, later ones more often; any float input where there is none."""
        found = [k for k in self.known if test(k)]
        if not found:
            raise NothingToDo
        return found[min(int(len(found) * self.random.random() ** 0.6), len(found) - 1)]

    def float(self, least: int = 1) -> Known:
        return self.pick(lambda k: k.is_float and k.rank >= least)

    def exact_float(self, least: int = 1) -> Known:
        return self.pick(lambda k: k.is_float and k.exact and k.rank >= least)

    def alike(self, other: Known) -> Known:
        """A float of the same shape, made by broadcasting or transposing where there is no other."""
        found = [k for k in self.known if k.is_float and k.x.shape == other.x.shape]
        return self.random.choice(found)

    def axis(self, k: Known, least: int = 2) -> int:
        axes = [d for d, n in enumerate(k.x.shape) if n >= least]
        if not axes:
            raise NothingToDo
        return self.random.choice(axes)

    def size(self) -> int:
        return self.random.choice(SIZES)

    def fresh(self, *shape: int) -> Any:
        """A constant array of the program, another one every time."""
        rng = np.random.default_rng(self.random.getrandbits(32))
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def made(self, *shape: int) -> Any:
        """A float array of this shape: an input's elements moved about, or a constant."""
        if self.random.random() < 0.5:
            x = self.exact_float().x
            flat = jnp.tile(x.reshape(-1), -(-prod(shape) // x.size))[: prod(shape)]
            return flat.reshape(shape).astype(jnp.float32)
        return self.fresh(*shape)


class NothingToDo(Exception):
    """There is no value that this op could take."""


Maker = Callable[[Drawing], Known | list[Known]]
OPS: dict[str, tuple[int, Maker]] = {}
"""Name -> how often it is drawn, and what it does."""


def op(weight: int = 1) -> Callable[[Maker], Maker]:
    def register(f: Maker) -> Maker:
        OPS[f.__name__] = (weight, f)
        return f

    return register
