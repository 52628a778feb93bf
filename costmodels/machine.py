"""A mesh on a machine: which links each axis runs on, and how long work and collectives take there.

>>> from autoshard.costmodels import load_profile, place_mesh, AxisPart
>>> machine = place_mesh(load_profile("tpu_v5e"), {"data": 16, "model": 16})
>>> machine.collective("all_gather", 9e9, (AxisPart("model", 1, 16),)).bandwidth_s  # V (n-1)/n / W, W = 90e9
0.09375

**Combination rule.** A collective has a latency term (hops or passes) and a bandwidth term. `least_s` is their
maximum, the lower bound that books quote; `seconds` (and `collective_s`, which planning uses) is their sum, the upper
figure: gathers of latency-bound size were measured at 2 to 3 times the lower bound (How To Scale Your Model, chapter
3). They differ by a factor of two at most. A collective of zero bytes costs its latency; one over a single device
costs nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf, prod
from typing import Any, Literal

import numpy as np

from autoshard.costmodels.collectives import (
    CollectiveKind,
    LevelCost,
    Piece,
    Torus,
    large_group_seconds_per_byte,
    level_costs,
)
from autoshard.costmodels.compiled import WorkKind
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.families import family_of
from autoshard.costmodels.likely import likely_seconds
from autoshard.costmodels.profile import Profile, TorusLevel


@dataclass(frozen=True, slots=True)
class AxisPart:
    """A mesh axis or a part of one: the axis is seen as ``[pre_size, size, rest]`` and the part is the middle."""

    axis: str
    pre_size: int
    size: int

    def __str__(self) -> str:
        return f"{self.axis}:({self.pre_size}){self.size}"


def _joined(parts: Sequence[AxisPart]) -> list[AxisPart]:
    """The same group, with consecutive parts of an axis joined to one part."""
    joined: list[AxisPart] = []
    for part in sorted(parts, key=lambda p: (p.axis, p.pre_size, p.size)):
        last = joined[-1] if joined else None
        if last is not None and last.axis == part.axis and last.pre_size * last.size == part.pre_size:
            joined[-1] = AxisPart(last.axis, last.pre_size, last.size * part.size)
        else:
            joined.append(part)
    return joined


@dataclass(frozen=True, slots=True)
class Segment:
    """A factor of a mesh axis on one physical dimension: `size` devices, `stride` apart, of level `level`."""

    level: str
    dim: int
    size: int
    stride: int = 1


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """Time of one collective, with the latency, bandwidth and links behind it."""

    kind: str
    bytes: float
    group_size: int
    seconds: float  # latency_s + bandwidth_s, what planning uses
    least_s: float  # max of the two, the lower bound
    bandwidth_s: float
    latency_s: float
    large_group_s: float  # bandwidth_s without the (n-1)/n of a finite group, "V / W"
    bound: Literal["bandwidth", "latency"]
    links: tuple[str, ...]  # innermost level first
    bytes_sent_per_device: dict[str, float]  # by level


def tile_efficiency(dims: Sequence[float], tile: int) -> float:
    """Share of a matrix unit's work that is useful when each dimension is padded to whole tiles.

    Prices leave this out unless a caller divides FLOP by it, for small matmuls. TPU matrix units take multiples of 128
    (256 from v6e on; How To Scale Your Model, chapter 2).

    >>> tile_efficiency((64, 4096, 4096), 128)
    0.5
    """
    useful = 1.0
    for dim in dims:
        useful *= dim / (ceil(dim / tile) * tile)
    return useful


@dataclass(frozen=True)
class Machine:
    """A mesh placed on a profile by `place_mesh`; pure data apart from a cache of collective costs.

    `layout` gives, for each axis, its segments from major to minor. `slice_shape` is the shape of one torus slice
    (empty where the profile has no torus).
    """

    profile: Profile
    axes: tuple[tuple[str, int], ...]
    layout: tuple[tuple[Segment, ...], ...]
    slice_shape: tuple[int, ...] = ()
    in_network_reduction: bool = False
    notes: tuple[str, ...] = ()
    _cache: dict[tuple[str, tuple[AxisPart, ...]], tuple[LevelCost, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _lines: dict[tuple[str, tuple[AxisPart, ...]], tuple[float, float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _rates: dict[tuple[str, str], float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [level.name for level in self.profile.levels]
        if len(self.layout) != len(self.axes):
            raise ProfileError(f"{len(self.axes)} axes but {len(self.layout)} of them laid out")
        for (axis, size), segments in zip(self.axes, self.layout, strict=True):
            if prod(s.size for s in segments) != size:
                raise ProfileError(f"axis {axis!r} has size {size} but its segments make {[s.size for s in segments]}")
            if unknown := [s.level for s in segments if s.level not in names]:
                raise ProfileError(f"axis {axis!r} lies on level {unknown[0]!r}; the levels are {names}")
        for level in self.profile.levels:
            mine = [s for segments in self.layout for s in segments if s.level == level.name and s.size > 1]
            if not isinstance(level, TorusLevel):
                used = prod(s.size for s in mine)
                if level.size is not None and used > level.size:
                    raise ProfileError(f"{used} devices on {level.name}, which has {level.size}")
                continue
            for dim, length in enumerate(self.slice_shape):  # the segments of a dimension tile it
                covered = 1
                for segment in sorted((s for s in mine if s.dim == dim), key=lambda s: s.stride):
                    covered = covered * segment.size if segment.stride == covered else 0
                if covered != length:
                    raise ProfileError(f"the axes do not tile dimension {dim} of slice {list(self.slice_shape)}")
            if any(s.dim >= len(self.slice_shape) for s in mine):
                raise ProfileError(f"the axes use dimensions that slice {list(self.slice_shape)} lacks")

    @property
    def num_devices(self) -> int:
        """Number of devices of the mesh."""
        return prod(size for _, size in self.axes)

    @property
    def hbm_bytes(self) -> float:
        """Bytes of memory of one device."""
        return self.profile.memory.bytes.value

    @property
    def usable_bytes(self) -> float:
        """Bytes of one device's memory that the runtime leaves to programs; all of them where that is not known."""
        return self.profile.memory.usable_bytes

    def host_copy_s(self, bytes_: float) -> float:
        """Seconds to copy so many bytes between a device and its host; `ProfileError` where the link is not known."""
        link = self.profile.memory.host_link
        if link is None:
            raise ProfileError(
                f"profile {self.profile.name} does not say how fast the link to the host is: copy it to a file and "
                "give memory.host_link in bytes/s, one way"
            )
        return bytes_ / link.value

    @property
    def torus(self) -> Torus | None:
        """The torus slice that the mesh lies on; None where the innermost level is no torus."""
        level = self.profile.levels[0]
        if not isinstance(level, TorusLevel):
            return None
        return Torus(self.slice_shape, level.wraparound.wraps(self.slice_shape))

    def axis_size(self, axis: str) -> int:
        """Number of devices along a mesh axis; `ProfileError` with the known axes where there is none of this name."""
        for name, size in self.axes:
            if name == axis:
                return size
        raise ProfileError(f"the mesh has no axis {axis!r}; its axes are {dict(self.axes)}")

    def whole(self, *axes: str) -> tuple[AxisPart, ...]:
        """The parts that name whole axes."""
        return tuple(AxisPart(axis, 1, self.axis_size(axis)) for axis in axes)

    # Time of collectives

    def costs(self, kind: str, parts: Sequence[AxisPart]) -> tuple[LevelCost, ...]:
        """Cost per level of a collective over the group that `parts` span; cached."""
        key = (kind, tuple(parts))
        if key not in self._cache:
            try:
                named = CollectiveKind(kind)
            except ValueError:
                known = ", ".join(CollectiveKind)
                raise ProfileError(f"unknown collective {kind!r}; known are {known}") from None
            pieces = [piece for part in _joined(key[1]) for piece in self._pieces(part)]
            ranges = sorted((part.axis, part.pre_size, part.pre_size * part.size) for part in key[1] if part.size > 1)
            if any(a[0] == b[0] and a[2] > b[1] for a, b in pairwise(ranges)):
                named_parts = ", ".join(map(str, parts))
                raise ProfileError(f"the axes overlap: {named_parts} share devices; name each axis once")
            costs = level_costs(named, pieces, self.profile, self.torus, self.in_network_reduction)
            self._cache[key] = costs
        return self._cache[key]

    def alpha_beta(self, kind: str, parts: Sequence[AxisPart]) -> tuple[float, float]:
        """``(alpha_s, seconds_per_byte)`` such that ``collective_s = alpha_s + seconds_per_byte * bytes``."""
        key = (kind, tuple(parts))
        line = self._lines.get(key)
        if line is None:
            costs = self.costs(kind, parts)
            line = (sum(c.latency_s for c in costs), max((c.seconds_per_byte for c in costs), default=0.0))
            self._lines[key] = line
        return line

    def collective_s(self, kind: str, bytes_: Any, parts: Sequence[AxisPart]) -> Any:
        """Planning estimate in seconds. `bytes_` (V, see `collectives`) may be an array; then the result is one too."""
        alpha, beta = self.alpha_beta(kind, parts)
        return alpha + beta * bytes_

    def link_seconds(self, kind: str, parts: Sequence[AxisPart]) -> dict[str, float]:
        """Seconds per byte of V that each link is busy: ``nvlink``, or ``ici:0`` for a dimension of a torus.

        Collectives that share no link can run at once; those that share one take turns, so the total of a link over a
        step is a lower bound of the step.
        """
        return {
            link: cost.seconds_per_byte
            for cost in self.costs(kind, parts)
            for link in ([f"{cost.level}:{dim}" for dim in cost.dims] or [cost.level])
        }

    def collective(self, kind: str, bytes_: float, parts: Sequence[AxisPart]) -> CollectiveTime:
        """Time of one collective with its bound, links and bytes per level."""
        if not 0 <= bytes_ < inf:
            raise ProfileError(f"a collective cannot move {bytes_} bytes")
        costs = self.costs(kind, parts)
        latency = sum((c.latency_s for c in costs), start=0.0)
        bandwidth = max((c.seconds_per_byte for c in costs), default=0.0) * bytes_
        return CollectiveTime(
            kind=str(kind),
            bytes=float(bytes_),
            group_size=prod(part.size for part in parts),
            seconds=latency + bandwidth,
            least_s=max(latency, bandwidth),
            bandwidth_s=bandwidth,
            latency_s=latency,
            large_group_s=large_group_seconds_per_byte(costs) * bytes_,
            bound="bandwidth" if bandwidth >= latency else "latency",
            links=tuple(c.links for c in costs),
            bytes_sent_per_device={c.level: c.bytes_sent_per_byte * bytes_ for c in costs},
        )

    def likely_s(self, kind: str, bytes_: float, parts: Sequence[AxisPart]) -> float:
        """Seconds as collectives are measured, see `likely`: growing latency of rings, shares of the peak by size."""
        return likely_seconds(CollectiveKind(kind), bytes_, self.costs(kind, parts), self.profile)

    def _pieces(self, part: AxisPart) -> list[Piece]:
        size = self.axis_size(part.axis)
        if part.pre_size < 1 or part.size < 1 or size % (part.pre_size * part.size):
            raise ProfileError(
                f"{part}: pre-size times size is {part.pre_size * part.size}, "
                f"which does not divide the size {size} of axis {part.axis!r}"
            )
        lo = size // (part.pre_size * part.size)  # the part is the digits from lo to hi of the axis' coordinate
        hi = lo * part.size
        names = [level.name for level in self.profile.levels]
        segments = self.layout[[name for name, _ in self.axes].index(part.axis)]
        pieces: list[Piece] = []
        below = 1
        for segment in reversed(segments):
            above = below * segment.size
            if lo < above and below < hi:
                start, stop = max(lo, below), min(hi, above)
                if start % below or stop % start or above % stop:
                    return [self._unaligned(part, segments, names)]
                level = names.index(segment.level)
                pieces.append(Piece(level, segment.dim, segment.stride * (start // below), stop // start))
            below = above
        return pieces

    def _unaligned(self, part: AxisPart, segments: tuple[Segment, ...], names: list[str]) -> Piece:
        # A part whose size does not line up with the physical factors of its axis (a sub-axis of 4 of an axis of 12
        # that lies on 3 x 4 chips): price it as a line on the outermost link of the axis.
        outer = max((s for s in segments if s.size > 1), key=lambda s: (names.index(s.level), s.stride))
        return Piece(names.index(outer.level), outer.dim, outer.stride, part.size, exact=False)

    # Time of work

    def flops_per_s(self, dtype: str, unit: str = "matmul") -> float:
        """Peak rate of one device; unit "matmul" (matrix unit) or "vector" (everything else)."""
        key = (dtype, unit)
        if key not in self._rates:
            if unit not in ("matmul", "vector"):
                raise ProfileError(f'unknown unit {unit!r}; known are "matmul" and "vector"')
            vector = self.profile.vector_flops.value
            self._rates[key] = self.profile.matmul_flops_per_s(dtype) if unit == "matmul" else vector
        return self._rates[key]

    def compute_s(self, flops: Any, bytes_: Any, dtype: str, unit: str = "matmul") -> Any:
        """Roofline seconds of one device: ``max(flops / peak(dtype), bytes / memory bandwidth)``; also for arrays."""
        seconds = np.maximum(
            np.asarray(flops) / self.flops_per_s(dtype, unit), np.asarray(bytes_) / self.profile.memory.bandwidth.value
        )
        return float(seconds) if seconds.ndim == 0 else seconds

    def work_s(
        self, kind: WorkKind, flops: Any, bytes_: Any, dtype: str, unit: str = "matmul", result: Any = 0.0
    ) -> Any:
        """Seconds of work of a kind on one device, as the profile's compiler runs it; also for arrays.

        The roofline of `compute_s` where the profile has no `compiled_work`. bytes_: as the fusion model counts them.
        result: those of the results alone.
        """
        compiled = self.profile.compiled_work
        if compiled is None:
            return self.compute_s(flops, bytes_, dtype, unit)
        traffic = compiled.traffic(kind)
        # what runs beside the matrix unit is hidden by fusion as its bytes are
        flops_cost = 1.0 / compiled.share_of_peak(kind, family_of(dtype)) if unit == "matmul" else traffic
        crossing = traffic / compiled.share_of_memory(kind)
        flops, bytes_ = np.asarray(flops) * flops_cost, np.asarray(bytes_) * crossing
        written = compiled.written(kind, family_of(dtype)) / compiled.memory
        if written:
            at_work = self.compute_s(flops, 0.0, dtype, unit) + self.compute_s(0.0, np.asarray(result) * written, dtype)
            busy = np.maximum(at_work, self.compute_s(0.0, bytes_, dtype, unit))
        elif compiled.takes_turns(kind):
            busy = self.compute_s(flops, 0.0, dtype, unit) + self.compute_s(0.0, bytes_, dtype, unit)
        else:
            busy = self.compute_s(flops, bytes_, dtype, unit)
        return busy + compiled.start_s(kind)

    # Plain data

    def describe(self) -> dict[str, Any]:
        """How the axes lie on the links, as plain data for a plan and for printing."""
        axes: dict[str, Any] = {}
        for (axis, size), segments in zip(self.axes, self.layout, strict=True):
            axes[axis] = {
                "size": size,
                "segments": [{"level": s.level, "dim": s.dim, "size": s.size, "stride": s.stride} for s in segments],
                "on": self._axis_words(axis, segments),
            }
        data: dict[str, Any] = {"hardware": self.profile.name, "devices": self.num_devices, "axes": axes}
        if self.torus is not None:
            per_slice = prod(self.slice_shape)
            data["slice"] = {"shape": list(self.slice_shape), "rings": list(self.torus.wraps)}
            data["slices"] = max(1, self.num_devices // per_slice)
        data["in_network_reduction"] = self.in_network_reduction
        data["notes"] = list(self.notes)
        return data

    def _axis_words(self, axis: str, segments: tuple[Segment, ...]) -> str:
        if not segments:
            return "a single device"
        costs = self.costs(CollectiveKind.ALL_GATHER, self.whole(axis))
        return "; ".join(c.links for c in reversed(costs))

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to price again, the profile included; `from_dict` reads it back."""
        return {
            "profile": self.profile.to_dict(),
            "axes": [[name, size] for name, size in self.axes],
            "layout": [[[s.level, s.dim, s.size, s.stride] for s in segments] for segments in self.layout],
            "slice_shape": list(self.slice_shape),
            "in_network_reduction": self.in_network_reduction,
            "notes": list(self.notes),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Machine":
        """The inverse of `to_dict`; `ProfileError` where the data are malformed."""
        try:
            return Machine(
                profile=Profile.from_dict(data["profile"], origin="the machine's profile"),
                axes=tuple((str(name), int(size)) for name, size in data["axes"]),
                layout=tuple(
                    tuple(Segment(str(lv), int(dim), int(size), int(stride)) for lv, dim, size, stride in segments)
                    for segments in data["layout"]
                ),
                slice_shape=tuple(int(n) for n in data["slice_shape"]),
                in_network_reduction=bool(data["in_network_reduction"]),
                notes=tuple(str(note) for note in data.get("notes", ())),
            )
        except (KeyError, TypeError) as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else "a value has the wrong type"
            raise ProfileError(f"this is not a machine written by Machine.to_dict: {what}") from None
