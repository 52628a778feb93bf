"""Laying axes on the dimensions of one torus slice, and choosing the slice's shape.

As in JAX's device meshes (`jax.experimental.mesh_utils`), an axis takes one or several whole physical dimensions where
some shape allows that; otherwise dimensions are shared. Choices are compared by the bandwidth of the axes from the
innermost one on, then by their hops, then by how cubic the slice is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import prod

from autoshard.costmodels.collectives import Piece, Torus, is_ring, torus_bandwidth
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.links import Share
from autoshard.costmodels.profile import TorusLevel

# For each share, the factor that it takes of each dimension.
_Taken = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """A slice shape and, for each share in the given order, its (dimension, size, stride) from minor to major."""

    shape: tuple[int, ...]
    places: tuple[tuple[tuple[int, int, int], ...], ...]
    sold: bool


def slice_shapes(level: TorusLevel, chips: int) -> list[tuple[int, ...]]:
    """Ascending shapes of that many chips that fit the machine: shapes that are sold first, then the most cubic
    first.
    """
    if level.max_chips is not None and chips > level.max_chips:
        return []
    shapes = [s for s in _ascending(chips, level.dims, 1) if level.fits(s)]
    return sorted(shapes, key=lambda s: (not level.is_sold(s), s[-1] - s[0], s))


def _ascending(product: int, length: int, least: int) -> Iterator[tuple[int, ...]]:
    if length == 1:
        if product >= least:
            yield (product,)
        return
    first = least
    while first**length <= product:
        if product % first == 0:
            for rest in _ascending(product // first, length - 1, first):
                yield (first, *rest)
        first += 1


def plan_slice(level: TorusLevel, shares: Sequence[Share], shape: Sequence[int] | None) -> SlicePlan | None:
    """The best way to lay the shares (outermost first) on a slice, or None where no slice holds them."""
    chips = prod(share.size for share in shares)
    if shape is not None:
        wanted = tuple(shape)
        if len(wanted) != level.dims or not level.fits(wanted) or any(n < 1 for n in wanted):
            raise ProfileError(f"slice shape {list(wanted)} does not fit the machine's {list(level.max_shape)}")
        if prod(wanted) != chips:
            raise ProfileError(f"slice shape {list(wanted)} has {prod(wanted)} chips; the mesh puts {chips} on a slice")
        candidates = [wanted]
    else:
        candidates = slice_shapes(level, chips)
        if any(share.dims is not None for share in shares):  # named dimensions: their order matters
            candidates = [p for s in candidates for p in sorted(set(permutations(s)))]
    for sold in (True, False):
        mine = [s for s in candidates if level.is_sold(s) is sold]
        for ways in (_whole_dimensions, _shared_dimensions):
            best: tuple[tuple[object, ...], SlicePlan] | None = None
            for order, candidate in enumerate(mine):
                torus = Torus(candidate, level.wraparound.wraps(candidate))
                for taken in ways(shares, torus):
                    plan = SlicePlan(candidate, _places(taken, candidate), sold)
                    score = (*_score(plan.places, torus), order)
                    if best is None or score < best[0]:
                        best = (score, plan)
            if best is not None:
                return best[1]
    return None


def _whole_dimensions(shares: Sequence[Share], torus: Torus) -> Iterator[_Taken]:
    """Every way to give each share a set of whole dimensions."""
    dims = [d for d, n in enumerate(torus.shape) if n > 1]

    def fill(index: int, left: tuple[int, ...]) -> Iterator[_Taken]:
        if index < 0:
            if not left:
                yield ()
            return
        share = shares[index]
        for count in range(0 if share.size == 1 else 1, len(left) + 1):
            for chosen in combinations(left, count):
                if prod(torus.shape[d] for d in chosen) != share.size:
                    continue
                if share.dims is not None and not set(chosen) <= set(share.dims):
                    continue
                factors = tuple(n if d in chosen else 1 for d, n in enumerate(torus.shape))
                for outer in fill(index - 1, tuple(d for d in left if d not in chosen)):
                    yield (*outer, factors)

    yield from fill(len(shares) - 1, tuple(dims))


def _shared_dimensions(shares: Sequence[Share], torus: Torus) -> Iterator[_Taken]:
    """The way to share the dimensions that serves the innermost share best, then the next, and so on."""

    def fill(index: int, left: tuple[int, ...]) -> Iterator[_Taken]:
        if index < 0:
            yield ()
            return
        share = shares[index]
        options = []
        for factors in _factors(share.size, left):
            if share.dims is not None and any(f > 1 and d not in share.dims for d, f in enumerate(factors)):
                continue
            strides = [n // rest for n, rest in zip(torus.shape, left, strict=True)]
            places = tuple((d, f, strides[d]) for d, f in enumerate(factors) if f > 1)
            options.append((_score((places,), torus), factors))
        for _, factors in sorted(options):
            rest = tuple(n // f for n, f in zip(left, factors, strict=True))
            for outer in fill(index - 1, rest):
                yield (*outer, factors)

    best = next(fill(len(shares) - 1, torus.shape), None)
    if best is not None:
        yield best


def _factors(product: int, left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Ways to write a product with one factor for each dimension, each dividing the part of the dimension that is
    left.
    """
    if not left:
        if product == 1:
            yield ()
        return
    for first in range(1, min(product, left[0]) + 1):
        if product % first == 0 and left[0] % first == 0:
            for rest in _factors(product // first, left[1:]):
                yield (first, *rest)


def _places(taken: _Taken, shape: tuple[int, ...]) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    """(dimension, size, stride) of each share.

    The innermost share is contiguous on each dimension; within a share the last dimension is the minor one.
    """
    used = [1] * len(shape)
    places: list[tuple[tuple[int, int, int], ...]] = []
    for factors in reversed(taken):
        mine = []
        for dim in reversed(range(len(shape))):
            if factors[dim] > 1:
                mine.append((dim, factors[dim], used[dim]))
                used[dim] *= factors[dim]
        places.append(tuple(mine))
    return tuple(reversed(places))


def _score(places: Sequence[Sequence[tuple[int, int, int]]], torus: Torus) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Smaller is better: bandwidth of the shares from the innermost on, then their hops and pieces."""
    rates, hops = [], []
    for place in reversed(places):
        pieces = sorted(Piece(0, dim, stride, size) for dim, size, stride in place)
        rates.append(-torus_bandwidth(pieces, torus, 1.0) if pieces else 0.0)
        hops.append(sum(p.stride * (p.size // 2 if is_ring(p, torus) else p.size - 1) for p in pieces))
    return tuple(rates), tuple(hops)


def spill(axes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Ways to move the outer part of a mesh out of a slice, fewest slices first: axis -> the factor moved out."""
    found: list[tuple[int, dict[str, int]]] = [(1, {})]
    whole: dict[str, int] = {}
    for axis, size in axes.items():  # outermost first
        outside = prod(whole.values())
        found += [(outside * d, {**whole, axis: d}) for d in range(2, size + 1) if size % d == 0]
        whole[axis] = size
    for _, moved in sorted(found, key=lambda item: item[0]):
        yield moved
