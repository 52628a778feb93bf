"""The tables of a plan as plain rows, from the data of plan.json."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from autoshard.program.as_json import mesh_from_json
from autoshard.program.types import dtype_bytes
from autoshard.sharding.layout import Layout

Json = Mapping[str, Any]

_COPIED = ("params", "mu", "nu")
"""Steps of a path behind which parameters and optax's moments of them have the same names."""


@dataclass(frozen=True, slots=True)
class Group:
    """Inputs of one shape and one sharding whose paths differ only in numbers, or that are moments of one parameter.

    label: a path with ``*`` for numbers. dtypes: those that occur. local_bytes: of all of them on one device, as JAX
    has them.
    """

    label: str
    count: int
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    sharding: str
    local_bytes: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """All collectives of one kind over the same axes: how often, bytes moved in total, seconds per step."""

    axes: str
    kind: str
    count: float
    bytes: float
    seconds: float


def input_groups(plan: Json) -> list[Group]:
    """How every input is split, in the program's order."""
    mesh = mesh_from_json(dict(plan["mesh"]))
    program, definitions = plan["program"], plan["schedule"]["definitions"]
    values = {v["id"]: v for v in program["values"]}
    members: dict[tuple[str, tuple[int, ...], str], list[tuple[str, str, float]]] = {}
    for path, value in zip(program["input_names"], program["body"]["args"], strict=False):
        shape, dtype = tuple(values[value]["shape"]), values[value]["dtype"]
        data = definitions[str(value)]
        layout = Layout(tuple(tuple(d) for d in data["dims"]), tuple(data["unreduced"]))
        local_bytes = dtype_bytes(dtype) * prod(layout.even_part(shape, mesh).local_shape(shape, mesh))
        members.setdefault((_tail(path), shape, layout.text(mesh)), []).append((path, dtype, local_bytes))
    return [
        Group(
            _numbers_out(next((path for path, _, _ in group if "params" in path.split("/")), group[0][0])),
            len(group),
            shape,
            tuple(dict.fromkeys(dtype for _, dtype, _ in group)),
            sharding,
            sum(local for _, _, local in group),
        )
        for (_, shape, sharding), group in members.items()
    ]


def _tail(path: str) -> str:
    """The part of a path behind ``params``, ``mu`` or ``nu`` (all of it where it has none), with ``*`` for numbers."""
    steps = path.split("/")
    for index, step in enumerate(steps):
        if step in _COPIED and index + 1 < len(steps):
            return _numbers_out("/".join(steps[index + 1 :]))
    return _numbers_out(path)


def _numbers_out(path: str) -> str:
    """The path with ``*`` for each step that is a number.

    >>> _numbers_out("state/params/layers/12/wq")
    'state/params/layers/*/wq'
    """
    return re.sub(r"(?<=/)\d+(?=/|$)", "*", path)


def traffic(plan: Json) -> list[Traffic]:
    """Collectives added up per axes and kind, those that take longest first."""
    sums: dict[tuple[str, str], list[float]] = {}
    for row in plan["collectives"]:
        axes = row["axes"] if isinstance(row["axes"], str) else ", ".join(map(str, row["axes"]))
        total = sums.setdefault((axes, row["kind"]), [0.0, 0.0, 0.0])
        total[0] += row["times"]
        total[1] += row["bytes"] * row["times"]
        total[2] += row["seconds"] * row["times"]
    rows = [Traffic(axes, kind, *total) for (axes, kind), total in sums.items()]
    return sorted(rows, key=lambda t: (-t.seconds, t.axes, t.kind))
