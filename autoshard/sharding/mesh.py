"""Logical meshes: ordered named axes over a set of devices (S0.1, S0.60)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from numbers import Integral

from autoshard.errors import ShardingError
from autoshard.sharding.axis import AxisRef

_AXIS, _ID = r'"[^"\[\]]+"=\d{1,40}', r"\d{1,40}"  # Python refuses numbers of thousands of digits
_TEXT = re.compile(
    rf"<\[(?P<axes>(?:{_AXIS}(?:, *{_AXIS})*)?)\](?:, device_ids=\[(?P<ids>(?:{_ID}(?:, *{_ID})*)?)\])?>"
)


@dataclass(frozen=True, slots=True)
class Mesh:
    """An ordered list of (axis name, size); device ids fill it in row-major order, last axis minor.

    `device_ids` is None for the iota order, otherwise a permutation of ``0..N-1``.

    >>> mesh = Mesh.from_dict({"data": 2, "model": 4})
    >>> str(mesh), mesh.size
    ('<["data"=2, "model"=4]>', 8)
    """

    axis_names: tuple[str, ...]
    axis_sizes: tuple[int, ...]
    name: str = "mesh"
    device_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.axis_names) != len(self.axis_sizes):
            raise ShardingError(
                f"mesh @{self.name} names {len(self.axis_names)} axes but gives {len(self.axis_sizes)} sizes"
            )
        seen: set[str] = set()
        for axis, size in zip(self.axis_names, self.axis_sizes, strict=True):
            if not axis:
                raise ShardingError(f"mesh @{self.name} has an axis without a name")
            if axis in seen:
                raise ShardingError(f"mesh @{self.name} has two axes named {axis!r}; axis names must be unique")
            seen.add(axis)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ShardingError(f"mesh @{self.name}: axis {axis!r} has size {size!r}; sizes are integers >= 1")
        ids = self.device_ids
        if ids is not None and (len(ids) != self.size or sorted(ids) != list(range(self.size))):
            raise ShardingError(
                f"mesh @{self.name}: the device list must be a permutation of 0..{self.size - 1} "
                f"({self.size} = product of the axis sizes), found {list(ids)[:16]}"
            )

    @staticmethod
    def from_dict(axes: Mapping[str, int], name: str = "mesh") -> "Mesh":
        """Sizes by axis; whole numbers of NumPy are taken for what they are."""
        sizes = (int(n) if isinstance(n, Integral) and not isinstance(n, bool) else n for n in axes.values())
        return Mesh(tuple(axes.keys()), tuple(sizes), name)

    @staticmethod
    def from_text(text: str, name: str = "mesh") -> "Mesh":
        """The inverse of `str`: reads ``<["data"=2, "model"=4], device_ids=[...]>``."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ShardingError(f'{text[:200]!r} is no mesh; write <["data"=2, "model"=4]>')
        axes = [(axis, int(size)) for axis, size in re.findall(r'"([^"]+)"=(\d+)', match["axes"])]
        ids = None if match["ids"] is None else tuple(int(i) for i in re.findall(r"\d+", match["ids"]))
        return Mesh(tuple(a for a, _ in axes), tuple(s for _, s in axes), name, ids)

    @property
    def size(self) -> int:
        """Number of devices."""
        return prod(self.axis_sizes)

    def axis_size(self, axis: str) -> int:
        """Number of devices along a whole axis; `ShardingError` with the known axes where there is none of this
        name.
        """
        try:
            return self.axis_sizes[self.axis_names.index(axis)]
        except ValueError:
            known = ", ".join(f'"{a}"={s}' for a, s in zip(self.axis_names, self.axis_sizes, strict=True))
            raise ShardingError(f"mesh @{self.name} has no axis {axis!r}; its axes are {known or 'none'}") from None

    def ref_size(self, ref: AxisRef) -> int:
        """Size of a whole axis or sub-axis of this mesh; checks that it exists (S0.18, S0.19)."""
        full = self.axis_size(ref.name)
        if ref.pre_size is None or ref.size is None:
            return full
        if full % (ref.pre_size * ref.size):
            raise ShardingError(
                f"sub-axis {ref}: pre-size times size is {ref.pre_size * ref.size}, "
                f'which does not divide the size {full} of axis "{ref.name}"'
            )
        if ref.size == full:
            raise ShardingError(f'sub-axis {ref} is the whole axis; write "{ref.name}"')
        return ref.size

    def __str__(self) -> str:
        axes = ", ".join(f'"{a}"={s}' for a, s in zip(self.axis_names, self.axis_sizes, strict=True))
        ids = "" if self.device_ids is None else f", device_ids={list(self.device_ids)}"
        return f"<[{axes}]{ids}>"
