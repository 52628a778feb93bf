"""Small questions on transfers that are no collective of equal shares: between two devices, ragged, with the host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from autoshard.costmodels.collectives import CollectiveKind
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.load import load_profile
from autoshard.costmodels.machine import AxisPart, Machine
from autoshard.costmodels.profile import Profile, SwitchLevel, TorusLevel
from autoshard.costmodels.questions import Answer, axis_part, placed
from autoshard.costmodels.step_collectives import distinct_devices


@dataclass(frozen=True, slots=True)
class TransferAnswer(Answer):
    """Time of one transfer. `seconds` is the larger of latency and bandwidth, `upper_seconds` their sum."""

    kind: str
    bytes: float
    bytes_sent: float  # by the busiest device
    hardware: str
    seconds: float
    upper_seconds: float
    bandwidth_s: float
    latency_s: float
    flip_bytes: float | None  # size at which both are equal
    over: str  # in words


def _answer(
    kind: str, bytes_: float, sent: float, machine: str, over: str, latency: float, moving: float
) -> TransferAnswer:
    return TransferAnswer(
        kind=kind,
        bytes=float(bytes_),
        bytes_sent=float(sent),
        hardware=machine,
        seconds=max(latency, moving),
        upper_seconds=latency + moving,
        bandwidth_s=moving,
        latency_s=latency,
        flip_bytes=latency * bytes_ / moving if moving else None,
        over=over,
    )


def _checked(bytes_: float) -> float:
    if not 0 <= bytes_ < float("inf"):
        raise ProfileError(f"a transfer cannot move {bytes_} bytes")
    return float(bytes_)


def ask_point_to_point(
    bytes_: float,
    mesh: Mapping[str, int],
    axes: Sequence[str],
    hardware: str | Profile,
    *,
    links: Mapping[str, str] | None = None,
    slice_shape: Sequence[int] | None = None,
) -> TransferAnswer:
    """From one device to the farthest one of its group, with nothing else on the way; on a torus by one path.

    >>> answer = ask_point_to_point(1e9, {"x": 16}, ["x"], "tpu_v5e")
    >>> round(answer.seconds, 4), round(answer.latency_s * 1e6), answer.over
    (0.0222, 6, 'ici')
    """
    machine = placed(hardware, mesh, links, slice_shape, False)
    if not axes:
        raise ProfileError(f"name the axes between whose devices bytes are sent; the mesh has {dict(mesh)}")
    size = _checked(bytes_)
    latency, per_byte, over = 0.0, 0.0, []
    for cost in machine.costs(CollectiveKind.ALL_GATHER, tuple(axis_part(machine, axis) for axis in axes)):
        level = machine.profile.level(cost.level)
        rate = level.egress.value if isinstance(level, SwitchLevel) else level.link.value
        latency += cost.latency_s  # of a gather: as many hops as the farthest device is away, or one pass
        per_byte = max(per_byte, 1 / rate)
        over.append(cost.level)
    words = ", ".join(over) or "nothing"
    sent = size if over else 0.0
    return _answer("point_to_point", size, sent, machine.profile.name, words, latency, size * per_byte)


def ask_ragged_all_to_all(
    bytes_: float,
    mesh: Mapping[str, int],
    axes: Sequence[str],
    hardware: str | Profile,
    *,
    top_k: int,
    imbalance: float = 1.0,
    links: Mapping[str, str] | None = None,
    slice_shape: Sequence[int] | None = None,
) -> TransferAnswer:
    """Tokens to the devices of their experts: each goes to `top_k` experts, drawn evenly, and to a device once.

    bytes_: all tokens of the group. A token goes to ``n (1 - (1 - 1/n)^k)`` of n devices. imbalance: the tokens of the
    busiest device over the mean.

    >>> ragged = ask_ragged_all_to_all(1e9, {"expert": 8}, ["expert"], "h100", top_k=2)
    >>> round(ragged.bytes_sent / 1e9, 3)  # 1/8 of the tokens, to 1.875 devices, 7/8 of it to others
    0.205
    """
    machine = placed(hardware, mesh, links, slice_shape, False)
    if isinstance(top_k, bool) or top_k < 1 or not imbalance >= 1:
        raise ProfileError(f"top_k is {top_k} and imbalance {imbalance}; both are numbers from 1 on")
    if not axes:
        raise ProfileError(f"name the axes that the exchange runs over; the mesh has {dict(mesh)}")
    parts: tuple[AxisPart, ...] = tuple(axis_part(machine, axis) for axis in axes)
    n = prod(part.size for part in parts)
    routed = _checked(bytes_) * distinct_devices(top_k, n) * imbalance
    time = machine.collective(CollectiveKind.ALL_TO_ALL, routed, parts)
    words = "; ".join(time.links) or "nothing"
    sent = routed * (n - 1) / n**2
    name = machine.profile.name
    return _answer("ragged_all_to_all", bytes_, sent, name, words, time.latency_s, time.bandwidth_s)


def ask_host_copy(bytes_: float, hardware: str | Profile) -> TransferAnswer:
    """Between a device and its host, one way; `ProfileError` where the profile does not say how fast that is.

    >>> round(ask_host_copy(64e9, "h100").seconds, 3)
    1.0
    """
    profile = hardware if isinstance(hardware, Profile) else load_profile(hardware)
    machine = Machine(
        profile, (), (), (1,) * profile.levels[0].dims if isinstance(profile.levels[0], TorusLevel) else ()
    )
    size = _checked(bytes_)
    return _answer("host_copy", size, size, profile.name, "host link", 0.0, machine.host_copy_s(size))
