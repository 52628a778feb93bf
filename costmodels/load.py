"""Profiles by name or from a user's file, which may build on another one (`base:`)."""

import re
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.files import read_yaml
from autoshard.costmodels.profile import Profile

_FOLDER = Path(__file__).parent / "profiles"
ALIASES = {
    "tpu_v4p": "tpu_v4", "v100_sxm2": "v100", "a100": "a100_80", "h100_sxm": "h100", "h200_sxm": "h200",
    "b200_sxm": "b200", "gb200": "gb200_nvl72", "trillium": "tpu_v6e", "ironwood": "tpu_v7x", "tpu7x": "tpu_v7x",
    "v3": "tpu_v3", "v4": "tpu_v4", "v5e": "tpu_v5e", "v5p": "tpu_v5p", "v6e": "tpu_v6e", "v7x": "tpu_v7x",
}  # fmt: skip


_AT = "@"


def list_calibrated() -> tuple[str, ...]:
    """Names of packaged profiles of a chip as a compiler or other software runs it (``tpu_v5e@compiler``), sorted."""
    return tuple(sorted(f"{path.stem}{_AT}{path.parent.name}" for path in _FOLDER.glob("*/*.yaml")))


def list_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with autoshard, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_profile(name_or_path: str | Path) -> Profile:
    """A profile by name (`tpu_v5e`), or from a YAML file (a path with a slash or ending in `.yaml`/`.yml`).

    ``tpu_v5e@compiler`` is the chip with work and overlap as its compiler's schedules have them, and
    ``a100_80@deepspeed_2021`` with what that software adds to sharded weights (`list_calibrated`).
    A file may say `base: tpu_v5e` and give only what differs: mappings are merged, levels are matched by name
    (a level with a new name is added at the outside), everything else replaces. `ProfileError` where it is unknown
    or impossible.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith((".yaml", ".yml")):
        return Profile.from_dict(_read(Path(text), ()), origin=text)
    return _packaged(canonical_name(text))


def canonical_name(name: str) -> str:
    """The name of the packaged profile: `TPU v5e`, `v5e` and `tpu-v5e` are `tpu_v5e`; unknown names stay."""
    chip, at, calibration = name.partition(_AT)
    plain = re.sub(r"[\s\-]+", "_", chip.strip().lower())
    packaged = ALIASES.get(chip.lower(), ALIASES.get(plain, plain)) + at + calibration.strip().lower()
    return packaged if packaged in (*list_profiles(), *list_calibrated()) else name


def _file(name: str) -> Path | None:
    """The file of a packaged profile; None where there is none of this name."""
    if name not in (*list_profiles(), *list_calibrated()):
        return None
    chip, _, calibration = name.partition(_AT)
    return _FOLDER / calibration / f"{chip}.yaml"


@lru_cache(maxsize=64)
def _packaged(name: str) -> Profile:
    path = _file(name)
    if path is None:
        near = get_close_matches(name.lower(), (*list_profiles(), *list_calibrated()), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ProfileError(
            f"no hardware profile named {name!r}; there are {', '.join((*list_profiles(), *list_calibrated()))}, "
            f"or give the path of a YAML file{hint}"
        )
    profile = Profile.from_dict(_read(path, ()), origin=name)
    assert profile.name == name.replace(_AT, "_"), f"the profile {name} calls itself {profile.name}"
    return profile


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    data = read_yaml(path, "hardware profile")
    if path.resolve() in seen:
        raise ProfileError(f"profile {path} builds on itself")
    if not isinstance(data, dict):
        raise ProfileError(
            f"hardware profile {path} must be a mapping, found {'nothing' if data is None else repr(data)[:60]}"
        )
    base = data.pop("base", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise ProfileError(f"hardware profile {path}: base must be a name or a path, found {base!r}")
    canonical = canonical_name(base)
    base_path = _file(canonical) or path.parent / base
    inherited = _read(base_path, (*seen, path.resolve()))
    mine, old = data.get("memory"), inherited.get("memory")
    if isinstance(mine, dict) and "bytes" in mine and "usable" not in mine and isinstance(old, dict):
        inherited["memory"] = {k: v for k, v in old.items() if k != "usable"}  # usable bytes of another memory
    return _merge(inherited, data)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _merge(old, value)
        elif key == "levels" and isinstance(old, list) and isinstance(value, list):
            merged[key] = _merge_levels(old, value)
        else:
            merged[key] = value
    return merged


def _name(level: Any) -> Any:
    return level.get("name") if isinstance(level, dict) else None


def _merge_levels(base: list[Any], over: list[Any]) -> list[Any]:
    merged = list(base)
    for level in over:
        name = _name(level)
        place = next((i for i, old in enumerate(merged) if name is not None and _name(old) == name), None)
        if place is None:
            merged.append(level)
        else:
            merged[place] = _merge(merged[place], level)
    return merged
