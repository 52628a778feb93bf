"""Small questions without a program: a collective, a sharded matmul.

Every answer is a frozen dataclass whose `to_dict()` is plain data for JSON. `seconds` of an answer is the lower
figure that books print (the maximum of latency and bandwidth, see `machine`); `upper_seconds` is their sum.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from math import inf, prod
from typing import Any

from autoshard.costmodels.collectives import CollectiveKind
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.links import MOST_DIGITS
from autoshard.costmodels.load import load_profile
from autoshard.costmodels.machine import AxisPart, Machine
from autoshard.costmodels.matmul import (
    MatmulCollective,
    Operand,
    flip_sizes,
    memory_flip_sizes,
    parse_matmul,
    price_ways,
)
from autoshard.costmodels.place import place_mesh
from autoshard.costmodels.profile import Profile

_PART = re.compile(r'^"?(?P<name>[^":]+)"?(?::\((?P<pre>\d+)\)(?P<size>\d+))?$')
_KINDS = {
    "collective_permute": CollectiveKind.SHIFT,
    "permute": CollectiveKind.SHIFT,
    "ppermute": CollectiveKind.SHIFT,
    "psum": CollectiveKind.ALL_REDUCE,
    "psum_scatter": CollectiveKind.REDUCE_SCATTER,
    "any_permute": CollectiveKind.PERMUTE,
}
_SLICES = ("slice", "all_slice", "dynamic_slice")  # every device keeps a part of its block: nothing is sent
_DTYPE = re.compile(
    r"(?:bfloat|bf)(?P<brain>16)|(?:float|fp|f)(?P<float>4|6|8|16|32|64)(?:_?e\d+m\d+\w*)?"
    r"|(?:u?int|u|s|i)(?P<int>1|2|4|8|16|32|64)|(?:complex|c)(?P<complex>64|128)"
)
_WORTH_MENTIONING = 0.95  # a quicker way is part of the answer only if it saves at least 5%


class Answer:
    """Base of the answers."""

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, for ``--json``."""
        assert is_dataclass(self) and not isinstance(self, type)
        return asdict(self)


def collective_kind(text: str) -> CollectiveKind:
    """A kind by its usual spellings (`all-gather`, `psum`); `permute` is the shift to a neighbour."""
    kinds = {**{str(kind): kind for kind in CollectiveKind}, **_KINDS}
    for name, kind in kinds.items():
        if name.replace("_", "") == _bare(text):
            return kind
    known = ", ".join(sorted(name.replace("_", "-") for name in (*kinds, _SLICES[0])))
    raise ProfileError(f"unknown collective {text!r}; known are {known}") from None


def _bare(kind: str) -> str:
    """A kind of collective without separators: ``All-Gather``, ``all gather`` and ``allgather`` are the same."""
    return "".join(c for c in kind.lower() if c not in "-_ ")


def axis_part(machine: Machine, text: str) -> AxisPart:
    """A mesh axis or sub-axis as text, ``y`` or ``y:(1)2``."""
    match = _PART.match(text.strip())
    if match is None or any(number is not None and len(number) > MOST_DIGITS for number in match.group("pre", "size")):
        raise ProfileError(f'cannot read axis {text[:80]!r}; write "y" or "y":(pre_size)size')
    if match["pre"] is None:
        return AxisPart(match["name"], 1, machine.axis_size(match["name"]))
    return AxisPart(match["name"], int(match["pre"]), int(match["size"]))


def dtype_bytes(dtype: str) -> float:
    """Bytes of one element of a dtype, by name; `ProfileError` for an unknown dtype."""
    match = _DTYPE.fullmatch(dtype)
    if dtype == "bool":
        return 1.0
    if match is None:
        raise ProfileError(
            f"unknown element type {dtype!r}; write bfloat16, float32, float8_e4m3fn or int8, for example"
        )
    return int(match[match.lastgroup or 0]) / 8


def placed(
    hardware: str | Profile,
    mesh: Mapping[str, int],
    links: Mapping[str, str] | None,
    slice_shape: Sequence[int] | None,
    in_network_reduction: bool,
) -> Machine:
    """The mesh on the machine of a profile, or of a profile's name; arguments as for `place_mesh`."""
    profile = hardware if isinstance(hardware, Profile) else load_profile(hardware)
    return place_mesh(profile, mesh, links, slice_shape=slice_shape, in_network_reduction=in_network_reduction)


@dataclass(frozen=True, slots=True)
class LevelShare:
    """The part of one link level in a collective."""

    level: str
    group_size: int  # devices, or domains of the level inside it
    bytes_sent_per_device: float
    bandwidth_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class CollectiveAnswer(Answer):
    """Time of one collective on part of a mesh."""

    kind: str
    bytes: float  # the whole array as seen inside one group; for a shift or permute the shard itself
    axes: tuple[str, ...]
    group_size: int
    hardware: str
    seconds: float  # lower figure: max of latency and bandwidth
    upper_seconds: float  # their sum
    likely_seconds: float  # with latency that grows with the group and shares of the peak by size, see `likely`
    bandwidth_s: float  # of the slowest link level
    latency_s: float
    large_group_s: float  # bandwidth_s without the (n-1)/n of a finite group, "V / W", as books round it
    bound: str  # "bandwidth" or "latency"
    flip_bytes: float | None  # size at which both are equal
    bus_bytes_per_s: float | None  # bytes that a device sends over the seconds: the "busbw" of NCCL's tests
    levels: tuple[LevelShare, ...]  # innermost first; `seconds` assumes that they work at the same time
    links: tuple[str, ...]
    bytes_sent_per_device: dict[str, float]  # by link level
    layout: dict[str, Any]  # how the mesh lies on the machine


def ask_collective(
    kind: str,
    bytes_: float,
    mesh: Mapping[str, int],
    axes: Sequence[str],
    hardware: str | Profile,
    *,
    links: Mapping[str, str] | None = None,
    slice_shape: Sequence[int] | None = None,
    in_network_reduction: bool = False,
) -> CollectiveAnswer:
    """How long a collective over `axes` takes; `bytes_` is the whole array on them (what an all-gather returns).

    >>> answer = ask_collective("all-gather", 2e9, {"x": 8, "y": 4}, ["y"], "tpu_v5e")
    >>> round(answer.seconds, 4), answer.bound, answer.links
    (0.0333, 'bandwidth', ('ici: dimension 0 (line of 4)',))
    """
    machine = placed(hardware, mesh, links, slice_shape, in_network_reduction)
    if not axes:
        raise ProfileError(f"name the axes that the {kind} runs over; the mesh has {dict(mesh)}")
    parts = tuple(axis_part(machine, axis) for axis in axes)
    if in_network_reduction:
        _refuse_no_reduction(machine, kind, parts)
    if _bare(kind) in map(_bare, _SLICES):
        if not 0 <= bytes_ < inf:
            raise ProfileError(f"a collective cannot move {bytes_} bytes")
        machine.costs(CollectiveKind.ALL_GATHER, parts)  # raises where the axes do not make a group
        return CollectiveAnswer(
            kind="slice", bytes=float(bytes_), axes=tuple(axes), group_size=prod(part.size for part in parts),
            hardware=machine.profile.name, seconds=0.0, upper_seconds=0.0, likely_seconds=0.0, bandwidth_s=0.0,
            latency_s=0.0, large_group_s=0.0, bound="bandwidth", flip_bytes=None, bus_bytes_per_s=None, levels=(),
            links=(), bytes_sent_per_device={}, layout=machine.describe(),
        )  # fmt: skip
    named = collective_kind(kind)
    time = machine.collective(named, bytes_, parts)
    n, passes = time.group_size, 2 if named is CollectiveKind.ALL_REDUCE else 1
    sent = bytes_ if named in (CollectiveKind.SHIFT, CollectiveKind.PERMUTE) else passes * bytes_ * (n - 1) / n
    sent /= n if named is CollectiveKind.ALL_TO_ALL else 1
    beta = machine.alpha_beta(named, parts)[1]
    return CollectiveAnswer(
        kind=str(named),
        bytes=float(bytes_),
        axes=tuple(axes),
        group_size=time.group_size,
        hardware=machine.profile.name,
        seconds=time.least_s,
        upper_seconds=time.seconds,
        likely_seconds=machine.likely_s(named, bytes_, parts),
        bandwidth_s=time.bandwidth_s,
        latency_s=time.latency_s,
        large_group_s=time.large_group_s,
        bound=time.bound,
        flip_bytes=time.latency_s / beta if beta else None,
        bus_bytes_per_s=sent / time.least_s if time.least_s else None,
        levels=tuple(
            LevelShare(c.level, c.group, c.bytes_sent_per_byte * bytes_, c.seconds_per_byte * bytes_, c.latency_s)
            for c in machine.costs(named, parts)
        ),
        links=time.links,
        bytes_sent_per_device=time.bytes_sent_per_device,
        layout=machine.describe(),
    )


def _refuse_no_reduction(machine: Machine, kind: str, parts: Sequence[AxisPart]) -> None:
    """Raise `ProfileError` where switches have nothing to add, or there are none in the group that can."""
    if _bare(kind) not in (_bare(CollectiveKind.ALL_REDUCE), "psum"):
        raise ProfileError(f"in_network_reduction is of all-reduces, found {kind}; leave it out")
    names = [cost.level for cost in machine.costs(CollectiveKind.ALL_REDUCE, tuple(parts))]
    if not any(getattr(machine.profile.level(name), "in_network_reduction", False) for name in names):
        over = f"the links of this group ({', '.join(names)})" if names else "a group of one device"
        raise ProfileError(f"in_network_reduction changes nothing on {over}; leave it out")


@dataclass(frozen=True, slots=True)
class NeededCollective:
    """One collective of a sharded matmul and its verdict."""

    tensor: str  # left, right or result
    kind: str
    axes: tuple[str, ...]
    bytes: float
    seconds: float
    upper_seconds: float
    bound: str  # of the collective itself: bandwidth or latency
    links: tuple[str, ...]
    flops_per_byte: float
    machine_flops_per_byte: float
    verdict: str  # "compute" or "communication"


@dataclass(frozen=True, slots=True)
class MatmulAnswer(Answer):
    """Collectives and times of a sharded matmul."""

    text: str
    hardware: str
    dtype: str
    flops_per_device: float
    memory_bytes_per_device: float
    compute_s: float  # roofline of the local work
    work_bound: str  # of the local work: "flops" or "memory"
    flops_per_byte: float  # of the local work and its memory traffic
    machine_flops_per_byte: float  # peak rate over memory bandwidth
    communication_s: float
    seconds: float  # lower bound: work and communication overlap
    upper_seconds: float  # nothing overlaps
    bound: str  # "compute", "memory" or "communication"
    collectives: tuple[NeededCollective, ...]
    flip_sizes: dict[str, float | None]  # per dimension, where compute overtakes communication
    large_group_flip_sizes: dict[str, float | None]  # the same without the (n-1)/n of finite groups, as books round it
    memory_flip_sizes: dict[str, float | None]  # per dimension, where compute overtakes memory
    quicker: tuple[NeededCollective, ...] | None  # the collectives of a quicker way, if there is one
    quicker_seconds: float | None
    layout: dict[str, Any]


def ask_matmul(
    text: str,
    dims: Mapping[str, float],
    mesh: Mapping[str, int],
    hardware: str | Profile,
    *,
    dtype: str = "bfloat16",
    storage: Sequence[str] | None = None,
    pad_tiles: bool = False,
    links: Mapping[str, str] | None = None,
    slice_shape: Sequence[int] | None = None,
) -> MatmulAnswer:
    """The collectives, seconds and verdict of a sharded matmul; sizes in `dims` are those of the whole arrays.

    `dtype` is that of the work. `storage` gives the dtypes in which left, right and result are held and sent, where
    they differ (8-bit weights with 16-bit work). With `pad_tiles`, the local dimensions are padded to whole tiles of
    the matrix unit.

    >>> answer = ask_matmul("B M_x @ M_x E -> B E_x", {"B": 1024, "M": 28672, "E": 8192}, {"x": 16, "y": 16}, "tpu_v6e")
    >>> [(c.kind, c.tensor, c.verdict) for c in answer.collectives], answer.bound
    ([('reduce_scatter', 'result', 'communication')], 'communication')
    """
    machine = placed(hardware, mesh, links, slice_shape, False)
    operands = parse_matmul(text, mesh)
    _check_sizes(text, operands, dims)
    if storage is not None and len(storage) != len(operands):
        raise ProfileError(f"storage gives {len(storage)} types; give three, of left, right and result")
    if pad_tiles and machine.profile.matmul_tile == 1:
        raise ProfileError(f"{machine.profile.name} says no matmul_tile, so pad_tiles means nothing there")
    own = dtype_bytes(dtype)
    widths = [dtype_bytes(dtype_of_tensor) for dtype_of_tensor in storage] if storage else [own] * len(operands)
    ways = price_ways(machine, operands, dims, dtype, (widths[0], widths[1], widths[2]), pad_tiles)
    needed, quickest = ways[0], min(ways, key=lambda way: way.most_s)
    other = quickest if quickest.most_s < needed.most_s * _WORTH_MENTIONING else None
    peak = machine.flops_per_s(dtype)
    memory_s = needed.memory_bytes_per_device / machine.profile.memory.bandwidth.value
    work_bound = "memory" if memory_s >= needed.compute_s and memory_s > needed.flops_per_device / peak else "flops"
    if needed.communication_s > needed.compute_s:
        bound = "communication"
    else:
        bound = "compute" if work_bound == "flops" else "memory"
    used = {d: size for d, size in dims.items() if any(d in o.dims for o in operands)}
    return MatmulAnswer(
        text=text,
        hardware=machine.profile.name,
        dtype=dtype,
        flops_per_device=needed.flops_per_device,
        memory_bytes_per_device=needed.memory_bytes_per_device,
        compute_s=needed.compute_s,
        work_bound=work_bound,
        flops_per_byte=needed.even_flops_per_device / needed.memory_bytes_per_device,
        machine_flops_per_byte=peak / machine.profile.memory.bandwidth.value,
        communication_s=needed.communication_s,
        seconds=needed.least_s,
        upper_seconds=needed.most_s,
        bound=bound,
        collectives=tuple(map(_needed, needed.collectives)),
        flip_sizes=flip_sizes(needed, operands, used, peak),
        large_group_flip_sizes=flip_sizes(needed, operands, used, peak, large_group=True),
        memory_flip_sizes=memory_flip_sizes(needed, operands, used, peak, machine.profile.memory.bandwidth.value),
        quicker=tuple(map(_needed, other.collectives)) if other else None,
        quicker_seconds=other.least_s if other else None,
        layout=machine.describe(),
    )


def _check_sizes(text: str, operands: Sequence[Operand], dims: Mapping[str, float]) -> None:
    known = {dim for operand in operands for dim in operand.dims}
    for dim, size in dims.items():
        if dim not in known:
            raise ProfileError(f"matmul {text!r} has no dimension {dim}; it has {', '.join(sorted(known))}")
        if not 1 <= size < inf:
            raise ProfileError(f"dimension {dim} has size {size}; sizes are numbers from 1 on")


def _needed(item: MatmulCollective) -> NeededCollective:
    return NeededCollective(
        tensor=item.tensor,
        kind=item.time.kind,
        axes=item.axes,
        bytes=item.time.bytes,
        seconds=item.time.least_s,
        upper_seconds=item.time.seconds,
        bound=item.time.bound,
        links=item.time.links,
        flops_per_byte=item.flops_per_byte,
        machine_flops_per_byte=item.machine_flops_per_byte,
        verdict="compute" if item.is_compute_bound else "communication",
    )
