"""Where the positions of a mesh lie on a machine: the domain (a slice, a node), and the place within it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from autoshard.costmodels.machine import Machine, Segment


def places(machine: Machine) -> list[tuple[int, ...]]:
    """Of every position of the mesh (row-major) the domain it lies in, and its coordinates there.

    The domain of a torus is a slice, and coordinates are those of the slice; elsewhere it is what the innermost level
    holds, and the coordinate is a number.
    """
    inner, torus = machine.profile.levels[0].name, bool(machine.slice_shape)
    steps = _steps(machine, inner, torus)
    out: list[tuple[int, ...]] = []
    for position in range(machine.num_devices):
        domain, coordinates = 0, [0] * (len(machine.slice_shape) or 1)
        rest = position
        for (_, size), axis in zip(reversed(machine.axes), reversed(steps), strict=True):
            digit, rest = rest % size, rest // size
            for dim, count, step in axis:  # minor to major
                here, digit = digit % count, digit // count
                if dim is None:
                    domain += here * step
                else:
                    coordinates[dim] += here * step
        out.append((domain, *coordinates))
    return out


def in_own_order(devices: Sequence[Any], device_ids: Sequence[int] | None) -> list[Any]:
    """Devices by position of the mesh, in the order of a mesh that has one of its own."""
    if device_ids is None:
        return list(devices)
    out: list[Any] = [None] * len(devices)
    for position, device in enumerate(device_ids):
        out[device] = devices[position]
    return out


def _steps(machine: Machine, inner: str, torus: bool) -> list[list[tuple[int | None, int, int]]]:
    """For each axis its segments from minor to major: the coordinate they count (None: the domain), size, step.

    Segments on switches have no step of their own: those of the innermost axis count fastest.
    """
    counted: dict[bool, int] = {True: 1, False: 1}  # devices counted so far inside of a domain, and domains

    def one_axis(segments: Iterable[Segment]) -> Iterator[tuple[int | None, int, int]]:
        for s in segments:
            inside = s.level == inner
            if inside and torus:
                yield s.dim, s.size, s.stride
                continue
            yield (0 if inside else None), s.size, counted[inside]
            counted[inside] *= s.size

    steps = [list(one_axis(reversed(segments))) for segments in reversed(machine.layout)]
    return steps[::-1]
