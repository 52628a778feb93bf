"""Reading a `shard_map`: a region on local arrays, without the mesh axes of size 1 (see `unit_axes`)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autoshard.errors import UnsupportedError
from autoshard.frontends.draft import DraftBlock, DraftOp, DraftValue, literal
from autoshard.frontends.jax.facts import axis_names, dtype_name, open_jaxpr, scalar_of
from autoshard.frontends.jax.nested import cut_block, gather_blocks, manual_axes
from autoshard.frontends.jax.sites import Site, describe
from autoshard.frontends.jax.unit_axes import axes_left, on_one_device, unit_axes, without
from autoshard.program.program import Origin

_SUMS = frozenset({"psum", "psum2", "psum_invariant"})
_VARYING = frozenset({"pvary", "pcast"})


@dataclass(frozen=True, slots=True, eq=False)
class JaxOp:
    """All that is needed to run an op again: the primitive, its parameters as traced, and the tracing context.

    For region ops `params` holds the untouched parameters of the equation. Do *not* use their inner jaxprs and operand
    counts: the op's `regions` and `attrs` in the Program count instead (calls in the body are inlined and dead code is
    removed, so carries and operands may be fewer). Of use are only `unroll`, `reverse`, `length` of a ``scan`` and
    `mesh`, `check_vma` of a ``shard_map``.
    local: of a kernel, what a device runs on its blocks, where the caller gave a function.
    """

    primitive: Any
    params: dict[str, Any]
    ctx: Any
    local: Any = None


@dataclass(slots=True)
class Frame:
    """One block that is being read. `captured`: by identity, the arrays that must come into the block as arguments."""

    origin: Origin
    block: DraftBlock
    captured: dict[int, tuple[Any, DraftValue]] = field(default_factory=dict)


class ShardMapReader(ABC):
    """The part of `JaxprReader` that reads `shard_map`."""

    _manual: int  # number of shard_maps around the present equation
    _inner_axes: set[str]  # axes of shard_maps inside of the one that is being read
    _units: set[str]  # axes of size 1 of the shard_maps around the present equation
    _axis_sizes: dict[str, int]  # of their meshes
    _varied: dict[DraftValue, DraftValue]  # numbers that are written in the code, by what `pvary` makes of them

    def _shard_map(self, frame: Frame, eqn: Any, operands: list[DraftValue], here: Site) -> list[DraftValue]:
        params = eqn.params
        mesh = params["mesh"]
        manual = manual_axes(params)
        units = unit_axes(_sizes(mesh))
        self._units, around = self._units | units, self._units
        if manual <= units:  # every device has all of it: plain ops
            results = self._inline(frame, params["jaxpr"], operands, here)
            self._units = around
            return results
        self._manual += 1
        self._axis_sizes = _sizes(mesh)
        outer, self._inner_axes = self._inner_axes, set()
        body = self._region(params["jaxpr"], here, operands)
        manual = (manual | self._inner_axes) - units
        self._inner_axes, self._units = outer, around
        self._manual -= 1
        if automatic := [str(n) for n in mesh.axis_names if n not in manual | units]:
            self._warn(
                f"shard_map at {describe(here)} leaves the axes {automatic} automatic: its body is not cut over them, "
                "every device along them computes the same"
            )
        captured = self._lift(frame, body)
        whole = [tuple(() for _ in v.type.shape) for v in captured]
        ins = [axis_names(s, v.type.rank) for s, v in zip(params["in_specs"], operands, strict=True)]
        outs = [axis_names(s, len(v.aval.shape)) for s, v in zip(params["out_specs"], eqn.outvars, strict=True)]
        attrs = {
            "mesh_axes": tuple((n, s) for n, s in _sizes(mesh).items() if n in manual),
            "in_names": (*whole, *(without(names, units) for names in ins)),
            "out_names": tuple(without(names, units) for names in outs),
        }
        op = DraftOp("shard_map", captured + operands, [], attrs=attrs, regions=[body.block])
        return self._entered(frame, op, eqn, here)

    def _inner_shard_map(self, frame: Frame, eqn: Any, operands: list[DraftValue], here: Site) -> list[DraftValue]:
        """Inline a `shard_map` inside of another one, over further axes: its body runs on the parts that its specs cut.

        Its operands are whole along these axes, so each device cuts its part out; results are gathered.
        """
        params = eqn.params
        sizes = _sizes(params["mesh"])
        units = unit_axes(sizes)
        self._axis_sizes |= sizes
        self._inner_axes |= manual_axes(params)
        self._units, around = self._units | units, self._units
        jaxpr, _ = open_jaxpr(params["jaxpr"])
        parts = []
        for value, spec, var in zip(operands, params["in_specs"], jaxpr.invars, strict=True):
            names, shape = without(axis_names(spec, value.type.rank), units), var.aval.shape
            parts.append(self._traced(frame, cut_block(names, shape), value, sizes, here) if any(names) else value)
        results = self._inline(frame, params["jaxpr"], parts, here)
        self._units = around
        gathered = []
        for value, spec in zip(results, params["out_specs"], strict=True):
            names = without(axis_names(spec, value.type.rank), units)
            gathered.append(self._traced(frame, gather_blocks(names), value, sizes, here) if any(names) else value)
        return gathered

    def _alone(
        self, frame: Frame, kind: str, eqn: Any, operands: list[DraftValue], here: Site
    ) -> list[DraftValue] | dict[str, Any]:
        """The parameters of an op, of a collective without its axes of size 1; or its results where nothing is sent."""
        results = self._sends_nothing(frame, kind, eqn, operands, here) if self._manual else None
        if results is not None or not self._units:
            return eqn.params if results is None else results
        return self._over_units(frame, kind, eqn, operands, here)

    def _sends_nothing(
        self, frame: Frame, kind: str, eqn: Any, operands: list[DraftValue], here: Site
    ) -> list[DraftValue] | None:
        """The results of a collective that needs no other device: a permute without pairs, and a sum of numbers that
        are written in the code, which JAX multiplies itself; None for others."""
        if kind == "ppermute" and not eqn.params["perm"]:
            return [self._traced(frame, jnp.zeros_like, value, {}, here) for value in operands]
        if kind in _VARYING and operands[0].literal is not None:
            results = self._entered(frame, DraftOp(kind, operands, []), eqn, here)
            self._varied.update(zip(results, operands, strict=True))
            return results
        if kind not in _SUMS or eqn.params.get("axis_index_groups") is not None:
            return None
        sizes = [self._axis_sizes.get(name) for name in eqn.params["axes"]]
        numbers = [self._varied.get(value, value).literal for value in operands]
        if None in sizes or None in numbers:
            return None
        size = prod(n for n in sizes if n is not None)
        return [_times(n, size, value.type.dtype) for n, value in zip(numbers, operands, strict=True)]

    def _over_units(
        self, frame: Frame, kind: str, eqn: Any, operands: list[DraftValue], here: Site
    ) -> list[DraftValue] | dict[str, Any]:
        """A collective without its axes of size 1: its parameters, or its results where no axis is left."""
        axes = axes_left(eqn.params, self._units)
        if axes is None:
            return dict(eqn.params)
        key, left = axes
        if left:
            return {**eqn.params, key: left if isinstance(eqn.params[key], tuple | list) else left[0]}
        if kind == "axis_index":
            return [literal(0, dtype_name(eqn.outvars[0].aval.dtype))]
        function = on_one_device(kind, eqn.params)
        if function is None:
            raise UnsupportedError(f"{kind} at {describe(here)} is over axes of size 1 alone; take it out")
        return [self._traced(frame, function, value, {}, here) for value in operands]

    def _traced(
        self, frame: Frame, f: Callable[[Any], Any], value: DraftValue, axes: Mapping[str, int], here: Site
    ) -> DraftValue:
        """Inline a function of one array into one array; `axes`: sizes of the axes that it may name."""
        if value.type.dtype.startswith("key<"):
            raise UnsupportedError(
                f"shard_map at {describe(here)} lies inside of another one and cuts random keys; pass them uncut, or "
                "make one shard_map of both"
            )
        spec = jax.ShapeDtypeStruct(value.type.shape, value.type.dtype)
        return self._inline(frame, jax.make_jaxpr(f, axis_env=list(axes.items()))(spec), [value], here)[0]

    @abstractmethod
    def _region(self, closed: Any, site: Site, operands: Sequence[DraftValue] = ()) -> Frame:
        """A body as a block of its own, and what it captured."""

    @abstractmethod
    def _inline(self, frame: Frame, callee: Any, operands: list[DraftValue], here: Site) -> list[DraftValue]:
        """Read a callee's equations as if they stood in the block; returns its results."""

    @abstractmethod
    def _lift(self, frame: Frame, body: Frame) -> list[DraftValue]:
        """Make the arrays a body captured its leading arguments; returns the operands that feed them."""

    @abstractmethod
    def _entered(self, frame: Frame, op: DraftOp, eqn: Any, here: Site) -> list[DraftValue]:
        """Put an op into the block; returns its results."""

    @abstractmethod
    def _warn(self, line: str) -> None:
        """Note a line for the user, once."""


def _sizes(mesh: Any) -> dict[str, int]:
    return {str(n): int(s) for n, s in zip(mesh.axis_names, mesh.axis_sizes, strict=True)}


def _times(number: Any, size: int, dtype: str) -> DraftValue:
    """A number of a type times the size of a group, in that type."""
    array = np.array([number]).astype(jnp.dtype(dtype))
    return literal(scalar_of((array * array.dtype.type(size))[0]), dtype)
