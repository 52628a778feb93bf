"""A model's parameters as a table, from which initial values, specs, logical axes and counts are made."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Axes = tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One array: its shape, a logical name per dimension, and its initial values.

    `std > 0` draws from a normal distribution, `std == 0` fills with `fill`. `matmul` is the share of tokens that
    multiply it (1 for a dense weight, k/E for one of E experts, 0 for a table or a norm). Weights decay, norms and
    biases do not. `layer` is the index of an unrolled layer; `stacked` says that dimension 0 runs over layers.
    """

    shape: tuple[int, ...]
    axes: Axes
    std: float = 0.0
    fill: float = 0.0
    matmul: float = 0.0
    active: float = 1.0
    layer: int | None = None
    stacked: bool = False

    def __post_init__(self) -> None:
        assert len(self.shape) == len(self.axes), f"{len(self.axes)} axes for shape {self.shape}"

    @property
    def decays(self) -> bool:
        """Whether weight decay applies: to parameters that start from random numbers."""
        return self.std > 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def weight(shape: tuple[int, ...], axes: Axes, *, fan_in: int, scale: float = 1.0, used: float = 1.0) -> Parameter:
    """A matrix that activations are multiplied with; each token uses the share `used` of it."""
    return Parameter(shape=shape, axes=axes, std=scale / math.sqrt(fan_in), matmul=used, active=used)


def stacked(layer: Mapping[str, Parameter], layers: int) -> dict[str, Parameter]:
    """The parameters of all layers in one array each, for `lax.scan`."""
    return {
        name: replace(p, shape=(layers, *p.shape), axes=("layers", *p.axes), stacked=True) for name, p in layer.items()
    }


def unrolled(layer: Mapping[str, Parameter], layers: int) -> list[dict[str, Parameter]]:
    """The parameters with an array for each layer; initial values are the same as those of `stacked`."""
    return [{name: replace(p, layer=i) for name, p in layer.items()} for i in range(layers)]


def path_string(path: tuple[Any, ...]) -> str:
    """A pytree path as text: `params/layers/0/wq`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _name(path: tuple[Any, ...], parameter: Parameter) -> str:
    """The path without the layer's index: the same for stacked and unrolled layers."""
    text = path_string(path)
    return text if parameter.layer is None else text.replace(f"/{parameter.layer}/", "/", 1)


def pattern(path: tuple[Any, ...], parameter: Parameter) -> str:
    """The path with the layer's index as `*`."""
    text = path_string(path)
    return text if parameter.layer is None else text.replace(f"/{parameter.layer}/", "/*/", 1)


def specs(table: Any, dtype: Any) -> Any:
    """The table as a pytree of `ShapeDtypeStruct`."""
    return jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, dtype), table)


Place = Callable[[str, np.ndarray], Any]
"""(path of a leaf of the state, ``params/layers/wq``; its value on the host) -> the array on its devices."""


def on_default_device(path: str, value: np.ndarray) -> jax.Array:
    """The array on JAX's default device: the `Place` that is used by default."""
    return jnp.asarray(value)


def initial(table: Any, dtype: Any, seed: int, place: Place = on_default_device, prefix: str = "") -> Any:
    """Initial values, drawn on the host: nothing is compiled, and every platform starts from the same bits.

    Each array's stream depends on the seed, its name and its layer alone, not on its neighbours. One array at a time
    is made and handed to `place` with `prefix` and its path.
    """

    def one(path: tuple[Any, ...], p: Parameter) -> jax.Array:
        if not p.std:
            return place(prefix + path_string(path), np.full(p.shape, p.fill, jnp.dtype(dtype)))
        name = zlib.crc32(_name(path, p).encode())

        def draw(layer: int, shape: tuple[int, ...]) -> np.ndarray:
            return np.random.default_rng([seed, name, layer]).standard_normal(shape, np.float32)

        layers = range(p.shape[0])
        values = np.stack([draw(i, p.shape[1:]) for i in layers]) if p.stacked else draw(p.layer or 0, p.shape)
        return place(prefix + path_string(path), (values * np.float32(p.std)).astype(jnp.dtype(dtype)))

    return jax.tree_util.tree_map_with_path(one, table)


def decay_mask(table: Any) -> Any:
    """The table with True where weight decay applies."""
    return jax.tree.map(lambda p: p.decays, table)


def logical_axes(table: Any) -> dict[str, Axes]:
    """Path pattern -> a name per dimension; unrolled layers share one pattern."""
    leaves = jax.tree_util.tree_leaves_with_path(table)
    return {pattern(path, p): p.axes for path, p in leaves}


def total(table: Any, weigh: Callable[[Parameter], float] = lambda p: 1.0) -> int:
    """Number of elements, each array weighted by `weigh` (all of it, its active part, its matmul part)."""
    return round(sum(p.size * weigh(p) for p in jax.tree.leaves(table)))
