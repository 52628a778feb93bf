"""Shardings that arguments come with, and tracing with arguments that have none or, in explicit mode, have these."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
from jax import tree_util
from jax.core import Tracer
from jax.extend.core import Literal
from jax.sharding import NamedSharding

from autoshard.errors import InputError, ShardingError, UnsupportedError
from autoshard.frontends.jax.facts import is_extended, open_jaxpr
from autoshard.frontends.jax.placement import constraint_attrs


@dataclass(frozen=True, slots=True)
class StatedSharding:
    """A sharding that an argument came with.

    sharding: its text. axes: the mesh axes that it uses, with their sizes. mesh, devices: as for a constraint in the
    code (see `autoshard.frontends.jax.placement`).
    """

    sharding: str
    axes: tuple[tuple[str, int], ...]
    mesh: str | None = None
    devices: tuple[int, ...] = ()


_ASKS_FOR_SHARDED = ("does not match the specs of the input", "can only refer to Auto axes of the mesh")
"""What JAX says of axes of type Explicit, by which arguments have to be sharded when a function is traced."""


_ASKS_FOR_MESH = ("requires a non-empty mesh in context", "The context mesh cannot be empty")
"""What JAX says of specs without a mesh where none is set."""


@contextmanager
def _told_of_meshes() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if any(words in str(error) for words in _ASKS_FOR_MESH):
            raise InputError(
                f"{error}\nA PartitionSpec or shard_map without a mesh is about the mesh that is set: plan inside of "
                "`with jax.set_mesh(mesh):`, or set it in the function (for a config), "
                "`with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):`"
            ) from error
        if not any(words in str(error) for words in _ASKS_FOR_SHARDED):
            raise
        raise InputError(
            f"{error}\nA function is planned with arguments that are not sharded yet: make the mesh in it with axes of "
            "type Auto, jax.make_mesh(sizes, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names)); by default "
            "its axes are Explicit. Or give arguments that come with shardings on such a mesh, "
            "jax.ShapeDtypeStruct(shape, dtype, sharding=...)"
        ) from error


def traced_with(function: Callable[..., Any], arrays: Sequence[Any], abstract: Sequence[Any]) -> Any:
    """A function traced with arguments that have no shardings (`abstract`).

    In explicit mode JAX refuses some functions so, in which values of the arguments meet others whose sharding is
    stated: these are traced with the shardings that `arrays` come with.
    """
    with _told_of_meshes():
        if all(explicit_sharding(leaf) is None for leaf in tree_util.tree_leaves(tuple(arrays))):
            return jax.jit(function).trace(*abstract)
        try:
            return jax.jit(function).trace(*abstract)
        except Exception:  # several kinds, assertions too, are what JAX has for types that do not fit
            return jax.jit(function).trace(*(tree_util.tree_map(_typed, one) for one in arrays))


def explicit_sharding(x: Any) -> NamedSharding | None:
    """The sharding of a leaf where it is part of its type."""
    sharding = None if isinstance(x, Tracer) else getattr(x, "sharding", None)
    return sharding if isinstance(sharding, NamedSharding) and sharding.mesh.explicit_axes else None


@dataclass(frozen=True, slots=True)
class Lying:
    """Shape and type of an array that lies somewhere, which is no statement about the plan."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: NamedSharding
    weak_type: bool = False


def typed_like(array: Any, x: Any) -> Any:
    """An array of the type of another leaf: in explicit mode it lies there."""
    sharding = explicit_sharding(x)
    return array if sharding is None else jax.device_put(array, sharding)


def _typed(x: Any) -> Any:
    """A leaf as an abstract array, with its sharding where that is part of its type."""
    leaf, sharding = abstracted(x), explicit_sharding(x)
    if sharding is None:
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)


def abstracted(x: Any) -> Any:
    """A leaf as an abstract array; Python scalars stay, because `jax.jit` types them weakly."""
    if not hasattr(x, "shape"):
        return x
    dtype = x.dtype if is_extended(x.dtype) else jax.dtypes.canonicalize_dtype(x.dtype)
    return jax.ShapeDtypeStruct(x.shape, dtype, weak_type=getattr(x, "weak_type", False))


def stated_by(leaf: Any, name: str) -> StatedSharding | None:
    """The sharding that a leaf states. An array states none: it lies somewhere, but that is no statement."""
    if not isinstance(leaf, jax.ShapeDtypeStruct) or leaf.sharding is None:
        return None
    return _sharding_of(leaf, f"argument {name}")


def comes_unread(leaf: Any) -> bool:
    """Whether a leaf would state a sharding, and has one that says nothing of a mesh."""
    stated = leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else None
    return stated is not None and not isinstance(stated, NamedSharding)


def lies(leaf: Any) -> StatedSharding | None:
    """The sharding of an array on several devices, in their own memory."""
    if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer) or len(leaf.sharding.device_set) < 2:
        return None
    try:
        return _sharding_of(leaf, "")
    except (ShardingError, UnsupportedError):
        return None


def _sharding_of(leaf: Any, where: str) -> StatedSharding | None:
    attrs = constraint_attrs(leaf.sharding, len(leaf.shape), (), where)
    if attrs is None:
        return None
    return StatedSharding(attrs["sharding"], attrs["mesh_axes"], attrs.get("mesh"), attrs.get("devices", ()))


def donated_by_jit(closed: Any) -> frozenset[int]:
    """Numbers of the input leaves that a `jit` donates which is the whole program, whichever function made it."""
    jaxpr, _ = open_jaxpr(closed)
    flags = jaxpr.eqns[0].params.get("donated_invars", ()) if len(jaxpr.eqns) == 1 else ()
    number = {var: k for k, var in enumerate(jaxpr.invars)}
    given = (atom for atom, donated in zip(jaxpr.eqns[0].invars, flags, strict=True) if donated) if flags else ()
    return frozenset(number[atom] for atom in given if not isinstance(atom, Literal) and atom in number)
