"""Hardware profiles as tables: a row for each figure of a profile, and its critical arithmetic intensities."""

from math import prod
from typing import Any

from autoshard.costmodels.load import list_calibrated, list_profiles, load_profile
from autoshard.costmodels.profile import Profile, SwitchLevel, TorusLevel


def hardware_rows(profile: Profile) -> list[dict[str, Any]]:
    """The table of `autoshard hardware NAME`: every number with unit, direction, source, date and note."""
    rows = []
    for name, quantity in profile.quantities().items():
        source = profile.sources[quantity.source]
        rows.append(
            {
                "what": name,
                "value": quantity.value,
                "unit": quantity.unit,
                "direction": quantity.direction,
                "source": source.title,
                "url": source.url,
                "date": source.date,
                "note": quantity.note,
            }
        )
    return rows


def critical_intensities(profile: Profile, dtype: str = "bfloat16") -> dict[str, float]:
    """FLOP per byte at which work and traffic take equally long: memory, then each link level (one-way figures).

    A torus level has two: one dimension as a ring (2w) and as a line (w). A level between nodes counts the whole node,
    ``node FLOP/s / node egress`` is the same; for a collective over nodes of d devices the ratio is 1/d of it.

    >>> {name: round(value) for name, value in critical_intensities(load_profile("tpu_v5e")).items()}
    {'memory': 243, 'ici ring': 2189, 'ici line': 4378, 'dcn': 63040}
    """
    peak = profile.matmul_flops_per_s(dtype)
    intensities = {"memory": peak / profile.memory.bandwidth.value}
    inner = 1
    for level in profile.levels:
        if isinstance(level, TorusLevel):
            intensities[f"{level.name} ring"] = peak / (2 * level.link.value)
            intensities[f"{level.name} line"] = peak / level.link.value
        elif isinstance(level, SwitchLevel):
            intensities[level.name] = peak / level.egress.value
            if inner > 1:  # all devices of a domain carry a collective's outer part together
                intensities[f"{level.name}, whole domain of {inner}"] = peak / (inner * level.egress.value)
        else:
            intensities[level.name] = peak / (level.link.value * (level.size - 1))
        inner *= level.size or 1 if not isinstance(level, TorusLevel) else 1
    return intensities


def domain_rows(profile: Profile, dtype: str = "bfloat16") -> list[dict[str, Any]]:
    """What the whole of each link level has: the largest slice of a torus, a full domain of a switch or mesh.

    links_bytes_per_s: what all devices send at once, one way. bisection_bytes_per_s: what crosses between two halves,
    one way. Levels without a size (between nodes, slices) have no whole.

    >>> domain_rows(load_profile("h100"))[0]["links_bytes_per_s"]  # 8 x 450 GB/s
    3600000000000.0
    """
    rows, devices = [], 1
    for level in profile.levels:
        if isinstance(level, TorusLevel):
            shape = level.max_shape
            devices = min(prod(shape), level.max_chips or prod(shape))
            wraps, longest = level.wraparound.wraps(shape), max(range(len(shape)), key=lambda i: shape[i])
            links = 2 * len(shape) * devices * level.link.value
            bisection = devices / shape[longest] * (2 if wraps[longest] else 1) * level.link.value
        elif level.size is None:
            break
        else:
            devices *= level.size
            switched = isinstance(level, SwitchLevel)
            each = level.egress.value if isinstance(level, SwitchLevel) else level.link.value * (level.size - 1)
            links = devices * each
            bisection = links / 2 if switched else (level.size / 2) ** 2 * devices / level.size * level.link.value
        rows.append(
            {
                "level": level.name,
                "devices": devices,
                "flops_per_s": devices * profile.matmul_flops_per_s(dtype),
                "memory_bytes": devices * profile.memory.bytes.value,
                "memory_bytes_per_s": devices * profile.memory.bandwidth.value,
                "links_bytes_per_s": links,
                "bisection_bytes_per_s": bisection,
            }
        )
    return rows


def hardware_overview() -> list[dict[str, Any]]:
    """The table of `autoshard hardware`: one row per packaged profile, those with calibrated figures last."""
    rows = []
    for name in (*list_profiles(), *list_calibrated()):
        profile = load_profile(name)
        rows.append(
            {
                "name": name,
                "title": profile.title,
                "bf16_flops_per_s": profile.matmul_flops_per_s("bfloat16"),
                "memory_bytes": profile.memory.bytes.value,
                "memory_bytes_per_s": profile.memory.bandwidth.value,
                "links": [_level_words(level) for level in profile.levels],
                "flops_per_byte": critical_intensities(profile),
            }
        )
    return rows


def _level_words(level: Any) -> str:
    if isinstance(level, TorusLevel):
        shape = "x".join(map(str, level.max_shape))
        return f"{level.name}: torus up to {shape}, {level.link.value:.4g} bytes/s per link one way"
    if isinstance(level, SwitchLevel):
        size = "any number" if level.size is None else str(level.size)
        return f"{level.name}: switch of {size}, {level.egress.value:.4g} bytes/s per device one way"
    return f"{level.name}: {level.size} with a link of {level.link.value:.4g} bytes/s one way per pair"
