"""A mesh whose sizes are open: ``{devices: 256, axes: [data, fsdp, tensor]}``, and the sizes that a machine allows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from numbers import Integral
from typing import Any

from autoshard.costmodels import ProfileError, load_profile, place_mesh
from autoshard.errors import InputError

MAX_DEVICES = 2**24
"""Largest mesh that may be asked for."""
MAX_SIZES = 2_000
"""Most ways to write the number of devices as a product that one search allows."""


@dataclass(frozen=True, slots=True)
class MeshSearch:
    """A number of devices and the names of the axes, outermost first; the search finds the size of each axis.

    >>> MeshSearch.read({"devices": 4, "axes": ["data", "model"]}).sizes()[:2]
    ({'data': 4, 'model': 1}, {'data': 2, 'model': 2})
    """

    devices: int
    axes: tuple[str, ...]

    @staticmethod
    def is_one(given: Any) -> bool:
        """Whether a mesh section leaves its sizes open: ``axes`` is a list, not the size of an axis of that name."""
        return isinstance(given, Mapping) and isinstance(given.get("axes"), list | tuple)

    @staticmethod
    def read(given: Mapping[str, Any]) -> "MeshSearch":
        """The search that a mesh section describes; `InputError` where the section is malformed."""
        unknown = sorted(set(given) - {"devices", "axes"})
        if unknown or "devices" not in given:
            raise InputError(
                "a mesh with open sizes is {devices: 256, axes: [data, fsdp, tensor]}, "
                + (f"found {', '.join(unknown)} besides" if unknown else "devices is missing")
                + "; where the sizes are known it is {data: 2, model: 4}"
            )
        devices, axes = given["devices"], tuple(given["axes"])
        devices = int(devices) if isinstance(devices, Integral) and not isinstance(devices, bool) else devices
        if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
            raise InputError(f"devices is a positive whole number, found {devices!r}")
        if devices > MAX_DEVICES:
            raise InputError(f"the mesh has {devices} devices; at most {MAX_DEVICES} can be planned for")
        if not axes or not all(isinstance(a, str) and a for a in axes):
            raise InputError(f"axes is a list of names such as [data, fsdp, tensor], found {list(axes)!r}")
        if len(set(axes)) < len(axes):
            raise InputError(f"axes names an axis twice: {', '.join(axes)}")
        search = MeshSearch(devices, axes)
        if search.count() > MAX_SIZES:
            raise InputError(
                f"{devices} devices can be put along {len(axes)} axes in {search.count()} ways; at most {MAX_SIZES} "
                "are searched: name fewer axes"
            )
        return search

    def count(self) -> int:
        """Number of ways to write the devices as a product, one factor for each axis."""
        ways, rest, prime = 1, self.devices, 2
        while rest > 1:
            power = 0
            while rest % prime == 0:
                rest, power = rest // prime, power + 1
            for k in range(power):
                ways = ways * (len(self.axes) + k) // (k + 1)
            prime = prime + 1 if prime * prime <= rest else max(rest, prime + 1)
        return ways

    def sizes(self) -> tuple[dict[str, int], ...]:
        """All sizes by axis, those with the longest first axis first."""
        return tuple(dict(zip(self.axes, product, strict=True)) for product in _products(self.devices, len(self.axes)))

    def allowed(self, hardware: Any) -> tuple[list[dict[str, int]], list[tuple[dict[str, int], str]]]:
        """Sizes that can be laid on a machine, and those that cannot, each with the reason.

        Raises `ProfileError` where there is no such machine.
        """
        profile = load_profile(hardware) if isinstance(hardware, str) or hasattr(hardware, "__fspath__") else hardware
        fits: list[dict[str, int]] = []
        others: list[tuple[dict[str, int], str]] = []
        for sizes in self.sizes():
            try:
                place_mesh(profile, sizes)
                fits.append(sizes)
            except ProfileError as error:
                others.append((sizes, str(error)))
        return fits, others


def _products(number: int, factors: int) -> Iterator[Sequence[int]]:
    if factors == 1:
        yield (number,)
        return
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    for first in sorted({*small, *(number // d for d in small)}, reverse=True):
        for rest in _products(number // first, factors - 1):
            yield (first, *rest)
