"""Propagating along the factors of one op: the basic and the aggressive strategy (S2.29 to S2.33).

Both look at the lists of axes that the tensors of an op have on a factor and find the axes that
agree. *Basic* spreads only what fits every tensor, so it settles no conflict. *Aggressive* lets each tensor take as
much as fits it, and settles conflicts between factors in favour of the one whose axes come from the larger tensor.
"""

from collections.abc import Sequence
from math import gcd, prod

from autoshard.propagation.directions import Direction
from autoshard.propagation.projection import FactorSharding, TensorFactorShardings
from autoshard.propagation.spec import Ref, Refs, contains, is_list_prefix, is_prefix, prefix_without, size


def agreed_axes(
    operands: Sequence[TensorFactorShardings],
    results: Sequence[TensorFactorShardings],
    factor: int,
    direction: Direction,
) -> Refs:
    """Axes on which all tensors agree along a factor: the common prefix, continued where lists merely stop.

    Where the direction is one-way, only the tensors at its source may lengthen the list.
    """
    if direction is Direction.NONE:
        return ()
    first, second = (results, operands) if direction is Direction.BACKWARD else (operands, results)
    axes: Refs = ()
    may_grow = True
    for group in (first, second):
        for tensor in group:
            sharding = tensor.factors.get(factor)
            if sharding is not None:
                axes, may_grow = _agree(axes, sharding.axes, may_grow)
        if direction is not Direction.BOTH:
            may_grow = False
    return axes


def _agree(old: Refs, new: Refs, may_grow: bool) -> tuple[Refs, bool]:
    """What two lists agree on, and whether it may still grow; never longer than `old` unless `may_grow`."""
    if old == new:
        return old, may_grow
    out: list[Ref] = []
    n_old, n_new = len(old), len(new)
    for i in range(min(n_old, n_new)):
        a, b = old[i], new[i]
        if a == b:
            out.append(a)
        elif is_prefix(b, a):
            if i + 1 < n_new:  # what follows in `new` cannot be the rest of `a`
                return (*out, b), False
            out.append(a)
        elif is_prefix(a, b):
            if not may_grow or i + 1 < n_old:
                return (*out, a), False
            out.append(b)
        else:
            return tuple(out), False
    common = min(n_old, n_new)
    out += old[common:]
    if may_grow:
        out += new[common:]
    return tuple(out), may_grow


def _clear_of_other_factors(ref: Ref, tensor: TensorFactorShardings, factor: int) -> Ref | None:
    clear: Ref | None = ref
    for other, sharding in tensor.factors.items():
        if other != factor:
            if sharding.overflow and (clear := prefix_without(clear, sharding.overflow)) is None:
                return None
            if sharding.axes and (clear := prefix_without(clear, sharding.axes)) is None:
                return None
    return clear


def _fits_factor(
    ref: Ref, tensor: TensorFactorShardings, sharding: FactorSharding, before: int, factor_size: int
) -> Ref | None:
    """The part of `ref` that this factor may hold behind axes of total size `before`; None where none."""
    prefix = prefix_without(ref, tensor.replicated) if tensor.replicated else ref
    if prefix is not None and tensor.unreduced:
        prefix = prefix_without(prefix, tensor.unreduced)
    if prefix is None:
        return None
    axes = sharding.axes
    if any(contains(a, prefix) for a in axes):
        return prefix
    if not sharding.is_closed and not sharding.overflow:
        if sharding.is_minor_most:
            return prefix
        if factor_size % before == 0:
            n = size(prefix)
            part = gcd(factor_size // before, n)
            if part == n:
                return prefix
            if part != 1:
                return prefix[0], prefix[1], prefix[1] * part
    if axes and is_prefix(axes[-1], prefix):
        return axes[-1]
    return None


def _is_sub_axis(ref: Ref, axis_sizes: tuple[int, ...]) -> bool:
    return size(ref) != axis_sizes[ref[0]]


def propagate_basic(
    operands: Sequence[TensorFactorShardings],
    results: Sequence[TensorFactorShardings],
    directions: Sequence[Direction],
    sizes: tuple[int, ...],
    axis_sizes: tuple[int, ...],
    conservative: bool,
) -> list[int]:
    """Spread along each factor what every tensor can take; returns the tensors changed (operands, then results)."""
    tensors = [*operands, *results]
    changed: set[int] = set()
    for factor, direction in enumerate(directions):
        axes = agreed_axes(operands, results, factor, direction)
        if not axes:
            continue
        kept: list[Ref] = []
        before = 1
        for ref in axes:
            part: Ref | None = ref
            for tensor in tensors:
                part = _clear_of_other_factors(part, tensor, factor)
                if part is None:
                    break
                sharding = tensor.factors.get(factor)
                if sharding is not None:
                    part = _fits_factor(part, tensor, sharding, before, sizes[factor])
                    if part is None:
                        break
            if part is None or (conservative and _is_sub_axis(part, axis_sizes)):
                break
            kept.append(part)
            if part != ref:
                break
            before *= size(part)
        wanted = tuple(kept)
        for index, tensor in enumerate(tensors):
            sharding = tensor.factors.get(factor)
            if sharding is not None and is_list_prefix(sharding.axes, wanted, strict=True):
                sharding.axes = wanted
                changed.add(index)
    return sorted(changed)


def propagate_aggressive(
    operands: Sequence[TensorFactorShardings],
    results: Sequence[TensorFactorShardings],
    directions: Sequence[Direction],
    sizes: tuple[int, ...],
    axis_sizes: tuple[int, ...],
    conservative: bool,
    elementwise: bool,
) -> list[int]:
    """Spread to each tensor what it can take; returns the tensors changed (operands, then results)."""
    agreed = [agreed_axes(operands, results, f, d) for f, d in enumerate(directions)]
    if not _can_change((*operands, *results), agreed):
        return []
    order = _factor_order((*operands, *results), agreed, sizes, elementwise)
    changed: list[int] = []
    for index, tensor in enumerate(results):
        if _expand(tensor, order, agreed, sizes, axis_sizes, conservative, ()):
            changed.append(len(operands) + index)
    bounds = results if elementwise else ()
    for index, tensor in enumerate(operands):
        if _expand(tensor, order, agreed, sizes, axis_sizes, conservative, bounds):
            changed.append(index)
    return sorted(changed)


def _can_change(tensors: Sequence[TensorFactorShardings], agreed: Sequence[Refs]) -> bool:
    """Whether any tensor has less on a factor than what was agreed on."""
    return any(
        agreed[factor]
        and sharding.axes != agreed[factor]
        and is_list_prefix(sharding.axes, agreed[factor], strict=True)
        for tensor in tensors
        for factor, sharding in tensor.factors.items()
    )


def _factor_order(
    tensors: Sequence[TensorFactorShardings], agreed: Sequence[Refs], sizes: tuple[int, ...], elementwise: bool
) -> list[int]:
    """Factors with axes, those preferred in a conflict first: larger source tensor, (elementwise:) more shards, lower
    indices.
    """
    wanted = [f for f, axes in enumerate(agreed) if axes]
    if len(wanted) == 1:
        return wanted
    source = [(-1, -1)] * len(sizes)  # (tensor size, tensor index)
    for index, tensor in enumerate(tensors):
        elements = prod(sizes[f] for f in tensor.factors)
        for factor, sharding in tensor.factors.items():
            axes = agreed[factor]
            if axes and elements > source[factor][0] and is_list_prefix(axes, sharding.axes, strict=False):
                source[factor] = (elements, index)

    def key(factor: int) -> tuple[int, int, int, int]:
        shards = prod(size(a) for a in agreed[factor]) if elementwise else 0
        return -source[factor][0], -shards, source[factor][1], factor

    return sorted(wanted, key=key)


def _expand(
    tensor: TensorFactorShardings,
    order: Sequence[int],
    agreed: Sequence[Refs],
    sizes: tuple[int, ...],
    axis_sizes: tuple[int, ...],
    conservative: bool,
    bounds: Sequence[TensorFactorShardings],
) -> bool:
    """Lengthen the factors of one tensor in order of preference; True where any was.

    bounds: the results of an elementwise op. An operand takes no more than its result did, since a
    constraint on the result would only undo it.
    """
    changed = False
    for factor in order:
        sharding = tensor.factors.get(factor)
        if sharding is None or not agreed[factor]:
            continue
        axes = _truncate(
            agreed[factor],
            lambda ref, before, s=sharding, f=factor: _fits_factor(ref, tensor, s, before, sizes[f]),
            axis_sizes,
            conservative,
        )
        if not is_list_prefix(sharding.axes, axes, strict=True):
            continue
        axes = _truncate(
            axes, lambda ref, _, f=factor: _clear_of_other_factors(ref, tensor, f), axis_sizes, conservative
        )
        for bound in bounds:
            limit = bound.factors.get(factor)
            if axes and limit is not None and is_list_prefix(limit.axes, axes, strict=True):
                axes = limit.axes
        if is_list_prefix(sharding.axes, axes, strict=True):
            sharding.axes = axes
            changed = True
    return changed


def _truncate(axes: Refs, keep, axis_sizes: tuple[int, ...], conservative: bool) -> Refs:
    """The longest prefix for which `keep(ref, size of what stands before)` agrees; the last may be shortened."""
    out: list[Ref] = []
    before = 1
    for ref in axes:
        part = keep(ref, before)
        if part is None or (conservative and _is_sub_axis(part, axis_sizes)):
            break
        out.append(part)
        if part != ref:
            break
        before *= size(part)
    return tuple(out)
