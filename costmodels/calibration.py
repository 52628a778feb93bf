"""Latency and rates fitted to measurements, and the profile they make. Measuring needs devices and is done elsewhere.

Times of collectives are ``passes or hops * latency + traffic / rate`` on a level, with the coefficients of the cost
model itself, so all kinds, sizes and groups of one level are fitted together. Work is ``overhead + amount / rate``.
Errors count relative to the measured time, so that small collectives weigh as much as large ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from scipy.optimize import nnls

from costmodels.errors import ProfileError
from costmodels.machine import AxisPart, Machine
from costmodels.profile import Profile, SwitchLevel


@dataclass(frozen=True, slots=True)
class CollectiveMeasurement:
    """A timed collective: `bytes` is V as everywhere, `seconds` net of the time to start a program."""

    kind: str
    parts: tuple[AxisPart, ...]
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class LineFit:
    """``seconds = latency_s * a + b / rate`` and how well it holds."""

    latency_s: float
    rate: float  # bytes/s or FLOP/s
    points: int
    rms_relative_error: float
    worst_relative_error: float


def fit_line(latency_parts: Sequence[float], amounts: Sequence[float], seconds: Sequence[float]) -> LineFit:
    """Fit ``seconds = latency * latency_part + amount / rate`` with both terms at least zero, in relative errors.

    >>> fit = fit_line([1, 1, 1], [0, 1e6, 2e6], [1e-3, 2e-3, 3e-3])
    >>> round(fit.latency_s, 9), round(fit.rate)
    (0.001, 1000000000)
    """
    times = np.asarray(seconds, dtype=float)
    if len(times) < 2 or not (times > 0).all():
        raise ProfileError(f"a fit needs at least two positive times, found {list(seconds)[:8]}")
    system = np.column_stack([latency_parts, amounts]).astype(float)
    scale = np.maximum(np.abs(system).max(axis=0), np.finfo(float).tiny)  # amounts are 1e9 times latency parts
    solution, _ = nnls(system / scale / times[:, None], np.ones(len(times)))
    latency, per_amount = solution / scale
    if per_amount <= 0:
        raise ProfileError("times do not grow with the amount; measure larger sizes")
    errors = (system @ (latency, per_amount)) / times - 1
    return LineFit(
        latency_s=float(latency),
        rate=float(1 / per_amount),
        points=len(times),
        rms_relative_error=float(np.sqrt(np.mean(errors**2))),
        worst_relative_error=float(np.abs(errors).max()),
    )


def fit_levels(machine: Machine, measurements: Sequence[CollectiveMeasurement]) -> dict[str, LineFit]:
    """Per link level, its latency and rate from the collectives that run on that level alone."""
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for measured in measurements:
        costs = machine.costs(measured.kind, measured.parts)
        if len(costs) != 1:
            continue
        (cost,) = costs
        level = machine.profile.level(cost.level)
        rate = level.egress.value if isinstance(level, SwitchLevel) else level.link.value
        if level.latency.value <= 0:
            raise ProfileError(f"level {level.name!r} of {machine.profile.name} has no latency to scale; give it one")
        rows.setdefault(cost.level, []).append(
            (cost.latency_s / level.latency.value, cost.seconds_per_byte * rate * measured.bytes, measured.seconds)
        )
    return {level: fit_line(*zip(*found, strict=True)) for level, found in rows.items()}


def calibrated_profile(
    base: Profile,
    *,
    name: str,
    date: str,
    title: str,
    levels: Mapping[str, LineFit],
    matmul_flops_per_s: Mapping[str, float] | None = None,
    vector_flops_per_s: float | None = None,
    memory_bytes_per_s: float | None = None,
) -> Profile:
    """The base profile with measured figures in place of its own; `matmul_flops_per_s` by family as in profiles."""
    data = base.to_dict()
    data["name"] = name
    data["title"] = f"{base.title}, calibrated"
    data["sources"]["calibration"] = {"title": title, "date": date}

    def measured(value: float, unit: str, note: str | None = None, **more: str) -> dict[str, Any]:
        found: dict[str, Any] = {"value": value, "unit": unit, "source": "calibration", **more}
        return found if note is None else {**found, "note": note}

    for level in data["levels"]:
        fit = levels.get(level["name"])
        if fit is None:
            continue
        note = f"{fit.points} points, rms error {fit.rms_relative_error:.0%}, worst {fit.worst_relative_error:.0%}"
        level["egress" if level["kind"] == "switch" else "link"] = measured(
            fit.rate, "bytes/s", note, direction="one-way"
        )
        level["latency"] = measured(fit.latency_s, "s")
        for key in ("vendor_both_ways", "vendor_both_ways_per_chip"):  # peak figures; a measured rate is below
            level.pop(key, None)
    for key in ("matmul_efficiency", "attention_efficiency") if matmul_flops_per_s else ():  # shares of a peak
        data.pop(key, None)
    for dtype, rate in (matmul_flops_per_s or {}).items():
        data["peak_flops"][dtype] = measured(rate, "FLOP/s")
    if vector_flops_per_s is not None:
        data["vector_flops"] = measured(vector_flops_per_s, "FLOP/s")
    if memory_bytes_per_s is not None:
        data["memory"]["bandwidth"] = measured(memory_bytes_per_s, "bytes/s")
    return Profile.from_dict(data, origin=f"the calibration of {base.name}")


def profile_yaml(profile: Profile) -> str:
    """The profile as the text of a YAML file that `load_profile` reads."""
    return yaml.safe_dump(profile.to_dict(), sort_keys=False, allow_unicode=True, width=120)
