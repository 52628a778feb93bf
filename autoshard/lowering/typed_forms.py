"""Shardings as types of arrays, as JAX's explicit sharding mode has them, and what to write where one is stated."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec

from autoshard.sharding.layout import AtomMesh, Layout


@dataclass(frozen=True, slots=True)
class Form:
    """The sharding in an array's type: mesh axes of each dimension, axes of partial sums, and axes marked as reduced.

    >>> str(Form((("x",), ()), frozenset({"y"})))
    'P("x", unreduced={"y"})'
    """

    dims: tuple[tuple[str, ...], ...]
    unreduced: frozenset[str] = frozenset()
    reduced: frozenset[str] = frozenset()

    @property
    def spec(self) -> PartitionSpec:
        """The form as a `PartitionSpec`."""
        entries = [None if not d else d[0] if len(d) == 1 else d for d in self.dims]
        if not self.unreduced and not self.reduced:
            return PartitionSpec(*entries)
        return PartitionSpec(*entries, unreduced=self.unreduced, reduced=self.reduced)

    @property
    def summed(self) -> "Form":
        """The form without partial sums."""
        return Form(self.dims)

    def is_cut_of(self, other: "Form") -> bool:
        """Whether devices get this form from the other one by keeping a part of what they hold."""
        pairs = zip(self.dims, other.dims, strict=True)
        return self.unreduced == other.unreduced and all(mine[: len(theirs)] == theirs for mine, theirs in pairs)

    def __str__(self) -> str:
        dims = list(self.dims)
        while dims and not dims[-1]:
            dims.pop()
        names = ["None" if not d else json.dumps(d[0]) if len(d) == 1 else _tuple(d) for d in dims]
        names += [
            f"{word}={{{', '.join(map(json.dumps, sorted(axes)))}}}"
            for word, axes in (("unreduced", self.unreduced), ("reduced", self.reduced))
            if axes
        ]
        return f"P({', '.join(names)})"


def _tuple(axes: tuple[str, ...]) -> str:
    return f"({', '.join(map(json.dumps, axes))})"


def form_of(x: Any) -> Form:
    """The form in the type of an array; that of numbers without a mesh is whole."""
    spec = jax.typeof(x).sharding.spec
    entries = getattr(spec, "partitions", spec)  # a spec with partial sums is not iterated
    dims = tuple(() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in entries)
    dims += ((),) * (jax.typeof(x).ndim - len(dims))
    return Form(dims, frozenset(spec.unreduced), frozenset(spec.reduced))


def form_of_layout(layout: Layout, mesh: AtomMesh) -> Form:
    """A layout in the names of the refined mesh."""
    return Form(
        tuple(tuple(mesh.names[a] for a in dim) for dim in layout.dims),
        frozenset(mesh.names[a] for a in layout.unreduced),
    )


class Site(NamedTuple):
    """Where a form is stated: ``use`` (operand or region result `slot` of `op`), ``shared`` or ``const`` (value `op`),
    ``operand`` or ``result`` `slot` of `op` (slot -1: the op itself).
    """

    what: str
    op: int
    slot: int = -1
    region: int = -1


CALLS: Mapping[str, str] = {
    "dot_general": "out_sharding={}",
    "reshape": "jax.lax.reshape(..., out_sharding={})",
    "broadcast_in_dim": "jax.lax.broadcast_in_dim(..., out_sharding={})",
    "iota": "jax.lax.broadcasted_iota(..., out_sharding={})",
    "reduce_sum": "jax.lax.reduce_sum(..., out_sharding={})",
}
"""How a user's call of an op takes a sharding that the primitive has as a parameter."""

_INDEXED: Mapping[str, str] = {
    "gather": ".at[...].get(out_sharding={})",
    "scatter": ".at[...].set(..., out_sharding={})",
    "scatter-add": ".at[...].add(..., out_sharding={})",
    "scatter-mul": ".at[...].multiply(..., out_sharding={})",
    "scatter-min": ".at[...].min(..., out_sharding={})",
    "scatter-max": ".at[...].max(..., out_sharding={})",
}
"""Ops of indexing: their calls take a sharding, for which JAX leaves explicit mode inside."""


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """One annotation of a program in explicit mode.

    how: ``out_sharding`` (an argument of the op), ``reshard`` (of a value) or ``auto_axes`` (the op leaves explicit
    mode). forms: one, or with ``auto_axes`` one for each result. op: its kind. value: the name of what is annotated.
    why: what explicit mode does without. local: whether devices only keep a part of what they hold.
    """

    site: Site
    how: str
    forms: tuple[Form, ...]
    op: str
    value: str
    source: str
    why: str
    local: bool = False

    @property
    def text(self) -> str:
        """What to write."""
        form = str(self.forms[0]) if len(self.forms) == 1 else f"({', '.join(map(str, self.forms))})"
        if self.how == "reshard":
            return f"jax.sharding.reshard(x, {form})"
        pattern = CALLS.get(self.op) if self.how == "out_sharding" else _INDEXED.get(self.op)
        return (pattern or "jax.sharding.auto_axes(f, out_sharding={})").format(form)

    @property
    def in_derivative(self) -> bool:
        """Whether the op belongs to a backward pass that JAX has made: `source` is then the line of the forward op."""
        return "transpose(" in self.source

    def to_dict(self) -> dict[str, Any]:
        """The annotation as plain data."""
        return {
            "source": self.source, "op": self.op, "value": self.value, "how": self.how, "write": self.text,
            "why": self.why, "in_derivative": self.in_derivative,
        }  # fmt: skip
