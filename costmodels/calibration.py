"""Latency and rates fitted to measurements, and the profile they make. The room `calibrate` does the measuring.

Times of collectives are ``passes or hops * latency + factor of the kind * traffic / rate`` on a level, with the
coefficients of the cost model itself, so all kinds, sizes and groups of one level are fitted together. Work is
``overhead + amount / rate``. Errors count relative to the measured time, so that small collectives weigh as much as
large ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import yaml
from scipy.optimize import nnls

from autoshard.costmodels.collectives import CollectiveKind, named_kind
from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.machine import AxisPart, Machine
from autoshard.costmodels.profile import Profile, SwitchLevel


@dataclass(frozen=True, slots=True)
class CollectiveMeasurement:
    """A timed collective: `bytes` is V as in `collectives`, `seconds` are net of the time to start a program."""

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
    kinds: dict[str, float] = field(default_factory=dict)  # of collectives: time over that of the formula at this rate


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


SIGNIFICANT = 1.15
"""A kind has a factor of its own where its times differ by more than this from those at the level's rate."""
_ROUNDS = 5


def fit_levels(machine: Machine, measurements: Sequence[CollectiveMeasurement]) -> dict[str, LineFit]:
    """Per link level, its latency and rate from the collectives that run on that level alone.

    Implementations reach different shares of a link by kind. The rate is that of all-gathers (of all kinds where there
    are none); `kinds` has the factor of every other kind that differs significantly.
    """
    rows: dict[str, list[tuple[str, float, float, float]]] = {}
    for measured in measurements:
        costs = machine.costs(measured.kind, measured.parts)
        if len(costs) != 1:
            continue
        (cost,) = costs
        level = machine.profile.level(cost.level)
        rate = level.egress.value if isinstance(level, SwitchLevel) else level.link.value
        if level.latency.value <= 0:
            raise ProfileError(f"level {level.name!r} of {machine.profile.name} has no latency to scale; give it one")
        kind = CollectiveKind(measured.kind)
        known = level.kind_factors.get(named_kind(kind), 1.0)
        amount = cost.seconds_per_byte * rate * measured.bytes / known
        rows.setdefault(cost.level, []).append(
            (kind.value, cost.latency_s / level.latency.value, amount, measured.seconds)
        )
    return {level: _fit_kinds(found) for level, found in rows.items()}


def _fit_kinds(rows: Sequence[tuple[str, float, float, float]]) -> LineFit:
    """Latency, rate and factors of kinds in turn, until they agree; rows are kind, latency part, amount, seconds."""
    kinds, latency_parts, amounts, seconds = (list(column) for column in zip(*rows, strict=True))
    factors: dict[str, float] = {}
    fit = fit_line(latency_parts, amounts, seconds)
    for _ in range(_ROUNDS):
        ratios: dict[str, list[float]] = {}
        for kind, part, amount, took in rows:
            moving = amount / fit.rate
            if moving * factors.get(kind, 1.0) > part * fit.latency_s:  # where bandwidth, not latency, decides
                ratios.setdefault(kind, []).append(max(took - part * fit.latency_s, 0.1 * took) / moving)
        medians = {kind: float(np.median(values)) for kind, values in ratios.items() if len(values) >= 3}
        unit = medians.get("all_gather", 1.0)
        factors = {
            kind: float(np.clip(value / unit, 0.05, 100))
            for kind, value in medians.items()
            if kind != "all_gather" and not 1 / SIGNIFICANT <= value / unit <= SIGNIFICANT
        }
        scaled = [amount * factors.get(kind, 1.0) for kind, amount in zip(kinds, amounts, strict=True)]
        fit = fit_line(latency_parts, scaled, seconds)
    return replace(fit, kinds={kind: round(factors[kind], 3) for kind in sorted(factors)})


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
    compiled_work: Mapping[str, Any] | None = None,
) -> Profile:
    """The base profile with measured figures in place of its own; `matmul_flops_per_s` by family as in profiles.

    compiled_work: the speed of compiled work, without a source. It has shares of the peak rates, so these stay those of
    the base unless more was measured.
    """
    data = base.to_dict()
    data["name"] = name
    data["title"] = f"{base.title.removesuffix(', calibrated').removesuffix(', uncalibrated')}, calibrated"
    data["chip"] = base.chip_name
    data["sources"]["calibration"] = {"title": title, "date": date}

    def measured(value: float, unit: str, note: str | None = None, **more: str) -> dict[str, Any]:
        figure: dict[str, Any] = {"value": value, "unit": unit, "source": "calibration", **more}
        return figure if note is None else {**figure, "note": note}

    for level in data["levels"]:
        fit = levels.get(level["name"])
        if fit is None:
            continue
        note = f"{fit.points} points, rms error {fit.rms_relative_error:.0%}, worst {fit.worst_relative_error:.0%}"
        level["egress" if level["kind"] == "switch" else "link"] = measured(
            fit.rate, "bytes/s", note, direction="one-way"
        )
        level["latency"] = measured(fit.latency_s, "s")
        level["kind_factors"] = dict(fit.kinds)
        for key in ("vendor_both_ways", "vendor_both_ways_per_chip", "step_latency", "small_step_latency", "reached"):
            level.pop(key, None)  # of the peak, which a measured rate takes the place of
    for key in ("matmul_efficiency", "attention_efficiency") if matmul_flops_per_s else ():  # shares of a peak
        data.pop(key, None)
    if compiled_work is not None:
        data["compiled_work"] = {**compiled_work, "source": "calibration"}

    def taken(rate: float, before: float) -> bool:
        return compiled_work is None or rate > before

    for dtype, rate in (matmul_flops_per_s or {}).items():
        if taken(rate, data["peak_flops"].get(dtype, {"value": 0.0})["value"]):
            data["peak_flops"][dtype] = measured(rate, "FLOP/s")
    if vector_flops_per_s is not None and taken(vector_flops_per_s, base.vector_flops.value):
        data["vector_flops"] = measured(vector_flops_per_s, "FLOP/s")
    if memory_bytes_per_s is not None and taken(memory_bytes_per_s, base.memory.bandwidth.value):
        data["memory"]["bandwidth"] = measured(memory_bytes_per_s, "bytes/s")
    return Profile.from_dict(data, origin=f"the calibration of {base.name}")


def profile_yaml(profile: Profile) -> str:
    """The profile as the text of a YAML file that `load_profile` reads."""
    return yaml.safe_dump(profile.to_dict(), sort_keys=False, allow_unicode=True, width=120)
