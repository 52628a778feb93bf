"""Manual axes on the border of a manual computation: removed on the way in, put back on the way out (S4.18, S4.23)."""

from collections.abc import Sequence

from autoshard.propagation.spec import Dim, Ref, Refs, Spec
from autoshard.sharding.mesh import Mesh


def erase_manual(spec: Spec | None, manual: frozenset[str], meshes: Sequence[Mesh]) -> Spec | None:
    """The sharding that the body of a manual computation sees: free axes only."""
    if spec is None or not manual:
        return spec

    def free(axes: Refs) -> Refs:
        return tuple(a for a in axes if not _is_manual(a, spec.mesh, manual, meshes))

    dims = tuple(d._replace(axes=free(d.axes)) for d in spec.dims)
    unreduced = free(spec.unreduced)
    return Spec(spec.mesh, dims, free(spec.replicated), unreduced, spec.combiner if unreduced else "sum")


def add_free(outer: Spec, inner: Spec, manual: frozenset[str], meshes: Sequence[Mesh]) -> Spec:
    """The manual axes of `outer` with the free axes of `inner` behind them."""
    dims = tuple(
        Dim(tuple(a for a in o.axes if _is_manual(a, outer.mesh, manual, meshes)) + i.axes, i.is_open, i.priority)
        for o, i in zip(outer.dims, inner.dims, strict=True)
    )
    return Spec(inner.mesh, dims, outer.replicated, outer.unreduced, outer.combiner)


def _is_manual(ref: Ref, mesh: int, manual: frozenset[str], meshes: Sequence[Mesh]) -> bool:
    return meshes[mesh].axis_names[ref[0]] in manual
