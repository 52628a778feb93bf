"""Projection of a tensor's dimensions to the factors of a rule, and back (S2.19, S2.20, S2.25).

The axes of a dimension are dealt out to its factors, major to minor; an axis is split where a
factor's boundary falls inside it. Axes that cannot be dealt out (their size and what is left of a factor have no
common divisor) are kept aside as *overflow* of that factor and come back on the way to dimensions.
"""

from dataclasses import dataclass, field
from math import gcd, prod

from autoshard.program.rule import TensorFactors
from autoshard.propagation.spec import Dim, Ref, Refs, Spec, append_merged, size


@dataclass(slots=True)
class FactorSharding:
    """Axes on one factor of one tensor.

    is_minor_most: the last factor of its dimension; only that one may be padded.
    overflow: axes of the dimension that no factor could take.
    """

    axes: Refs = ()
    is_closed: bool = False
    is_minor_most: bool = True
    overflow: Refs = ()


@dataclass(slots=True)
class TensorFactorShardings:
    """The axes on each factor of one tensor; factors hidden behind an overflow are absent."""

    factors: dict[int, FactorSharding] = field(default_factory=dict)
    replicated: Refs = ()
    unreduced: Refs = ()
    combiner: str = "sum"

    def expand(self, factor: int, axes: Refs, is_strict_prefix: bool) -> bool:
        """Set the axes of a factor to a longer list; True where that was done."""
        if not is_strict_prefix:
            return False
        self.factors[factor].axes = axes
        return True


def project(mapping: TensorFactors, spec: Spec | None, sizes: tuple[int, ...]) -> TensorFactorShardings:
    """Deal the axes of each dimension out to its factors. A tensor without sharding is open everywhere."""
    out = TensorFactorShardings()
    for index, factors in enumerate(mapping):
        axes, is_closed = ((), False) if spec is None else (spec.dims[index].axes, not spec.dims[index].is_open)
        if len(factors) == 1:  # most dimensions; the axes of a spec are merged already
            out.factors[factors[0]] = FactorSharding(axes, is_closed)
        else:
            _project_dim(factors, axes, is_closed, sizes, out.factors)
    if spec is not None:
        out.replicated = spec.replicated
        out.unreduced = spec.unreduced
        out.combiner = spec.combiner
    return out


def _project_dim(
    factors: tuple[int, ...], axes: Refs, is_closed: bool, sizes: tuple[int, ...], out: dict[int, FactorSharding]
) -> None:
    queue: list[Ref] = list(axes)  # the first entry may be what is left of an axis
    last = len(factors) - 1
    has_overflow = False
    for position, factor in enumerate(factors):
        sharding = FactorSharding(is_minor_most=position == last)
        out[factor] = sharding
        if has_overflow:
            sharding.is_closed = True
            return
        sharding.is_closed = is_closed
        if sharding.is_minor_most:
            sharding.axes = _merged(queue)
            return
        room = sizes[factor]
        taken: list[Ref] = []
        while queue:
            axis, pre, end = queue[0]
            n = end // pre
            part = 1 if n == 1 else gcd(room, n)
            if n > 1 and part == 1:
                break
            if n > part:
                taken.append((axis, pre, pre * part))
                queue[0] = (axis, pre * part, end)
            else:
                taken.append(queue.pop(0))
            room //= part
        sharding.axes = tuple(taken)
        if room > 1 and queue:
            has_overflow = True
            sharding.overflow = _merged(queue)
            queue = []


def _merged(refs: list[Ref]) -> Refs:
    out: list[Ref] = []
    for ref in refs:
        append_merged(out, ref)
    return tuple(out)


def unproject(
    tensor: TensorFactorShardings, mapping: TensorFactors, sizes: tuple[int, ...], mesh: int, old: Spec | None
) -> Spec:
    """Dimension shardings from factor shardings.

    A factor that is not cut to the end hides the axes of the factors behind it (they would need a strided
    view). Dimensions without any factor keep what `old` says. Priorities are dropped, as in Shardy.
    """
    dims: list[Dim] = []
    for index, factors in enumerate(mapping):
        if not factors:
            dims.append(Dim((), True) if old is None else old.dims[index]._replace(priority=None))
            continue
        is_closed = False
        axes: list[Ref] = []
        for factor in factors:
            sharding = tensor.factors[factor]
            is_closed |= sharding.is_closed
            _extend(axes, sharding.axes)
            if sharding.overflow:
                _extend(axes, sharding.overflow)
                break
            if prod(size(a) for a in sharding.axes) < sizes[factor]:
                break
        dims.append(Dim(tuple(axes), not is_closed))
    return Spec(mesh, tuple(dims), tensor.replicated, tensor.unreduced, tensor.combiner)


def _extend(axes: list[Ref], more: Refs) -> None:
    """Append a factor's axes; only the boundary between two factors can need merging."""
    if more:
        append_merged(axes, more[0])
        axes.extend(more[1:])
