"""The links of a mesh with a given device order: permuting devices over fast and slow links changes the time (S2.6).

Devices are numbered over the machine with the innermost coordinate fastest: domain (or slice) by domain, inside a slice
row-major over its shape. Every prime factor of a mesh axis must then be a step of constant length along one physical
dimension. For other orders no links can be named.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.machine import Segment
from autoshard.costmodels.profile import Profile, TorusLevel
from autoshard.costmodels.slices import slice_shapes


def segments_of_order(
    profile: Profile, axes: Sequence[tuple[str, int]], device_ids: Sequence[int], slice_shape: Sequence[int] | None
) -> tuple[tuple[tuple[Segment, ...], ...], tuple[int, ...]]:
    """Segments of each axis from major to minor, and the slice shape (empty without a torus)."""
    sizes = [size for _, size in axes]
    count = prod(sizes)
    if sorted(device_ids) != list(range(count)):
        raise ProfileError(f"the device order must be a permutation of 0..{count - 1}")
    places, shape = _physical(profile, count, slice_shape)
    coordinates = np.stack(np.unravel_index(np.asarray(device_ids), [n for _, _, n in places]), axis=-1)
    grid = coordinates.reshape(*sizes, len(places))
    layout = []
    for position, (axis, size) in enumerate(axes):
        moved = np.moveaxis(grid, position, 0)
        segments: list[Segment] = []  # minor to major
        below = 1
        for prime in _primes(size):
            # The axis seen as [rest, prime, below]: steps of this digit.
            digits = moved.reshape(size // (prime * below), prime, below, -1, len(places))
            steps = np.abs(np.diff(digits, axis=1)).reshape(-1, len(places))
            step = steps[0]
            if (steps != step).any() or np.count_nonzero(step) != 1:
                raise ProfileError(
                    f"the device order is irregular along axis {axis!r}: a step of {below} does not move a constant "
                    f"distance on one of {[f'{level}:{dim}' for level, dim, _ in places]}; reorder the devices"
                )
            index = int(np.argmax(step))
            segments.append(Segment(places[index][0], places[index][1], prime, int(step[index])))
            below *= prime
        layout.append(tuple(reversed(_joined(segments))))
    return tuple(layout), shape


def _physical(
    profile: Profile, count: int, slice_shape: Sequence[int] | None
) -> tuple[list[tuple[str, int, int]], tuple[int, ...]]:
    """(level, dimension, size) of the machine's coordinates, outermost first, for that many devices."""
    places: list[tuple[str, int, int]] = []
    shape: tuple[int, ...] = ()
    left = count
    for number, level in enumerate(profile.levels):
        if isinstance(level, TorusLevel):
            if slice_shape is not None:
                shape = tuple(slice_shape)
            else:
                slices = (n for n in range(1, left + 1) if left % n == 0 and slice_shapes(level, left // n))
                shape = slice_shapes(level, left // next(slices))[0]
            if left % prod(shape):
                raise ProfileError(f"slices of shape {list(shape)} do not divide {left} devices")
            mine = [(level.name, dim, n) for dim, n in enumerate(shape)]
        else:
            last = number == len(profile.levels) - 1
            size = left if level.size is None or (level.size >= left and last) else min(level.size, left)
            if left % size:
                raise ProfileError(f"{left} devices do not fill {level.name} domains of {size}")
            mine = [(level.name, 0, size)]
        places = mine + places
        left //= prod(n for _, _, n in mine)
    if left > 1:
        raise ProfileError(f"{profile.name} has no room for {count} devices")
    return places, shape


def _primes(size: int) -> list[int]:
    primes, divisor = [], 2
    while size > 1:
        while size % divisor == 0:
            primes.append(divisor)
            size //= divisor
        divisor += 1
    return primes


def _joined(segments: list[Segment]) -> list[Segment]:
    joined: list[Segment] = []
    for segment in segments:
        last = joined[-1] if joined else None
        along = last is not None and (last.level, last.dim) == (segment.level, segment.dim)
        if last is not None and along and segment.stride == last.stride * last.size:
            joined[-1] = Segment(last.level, last.dim, last.size * segment.size, last.stride)
        else:
            joined.append(segment)
    return joined
