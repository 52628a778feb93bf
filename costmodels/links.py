"""Links of mesh axes that the user gives: ``{"data": "dcn", "fsdp": "dcn=2, ici=4", "model": "ici:1+2"}``.

Per axis, from major to minor and separated by commas: a level of the profile, optionally the torus dimensions by
number, and the size of that part (one part may leave it open).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.profile import Profile, TorusLevel

MOST_DIGITS = 18
"""Longer numbers are not read: Python refuses those of thousands of digits."""
_TERM = re.compile(r"^(?P<level>[a-z][a-z0-9_]*)(?::(?P<dims>\d+(?:\+\d+)*))?(?:=(?P<size>\d+))?$")


@dataclass(frozen=True, slots=True)
class Share:
    """A factor of an axis that lies on one level; `rank` counts the factors of an axis from minor (0) to major."""

    axis: str
    rank: int
    size: int
    dims: tuple[int, ...] | None = None  # torus dimensions it must lie on; None for any


def read_links(profile: Profile, axes: Mapping[str, int], links: Mapping[str, str]) -> dict[str, list[Share]]:
    """The shares that the user gives, by level name; axes without a link (or of size 1) have none."""
    fixed: dict[str, list[Share]] = {level.name: [] for level in profile.levels}
    for axis, text in links.items():
        if axis not in axes:
            raise ProfileError(f"links name axis {axis!r}, which the mesh does not have; its axes are {list(axes)}")
        terms = [_read_term(profile, axis, term.replace(" ", "")) for term in str(text).split(",")]
        if axes[axis] == 1:
            continue
        known = prod(size for _, _, size in terms if size is not None)
        still_open = sum(size is None for _, _, size in terms)
        if still_open > 1 or axes[axis] % known or (still_open == 0 and known != axes[axis]):
            raise ProfileError(
                f"links of axis {axis!r}: the sizes in {text!r} must make {axes[axis]}; only one part may be open"
            )
        for rank, (name, dims, size) in enumerate(reversed(terms)):
            fixed[name].append(Share(axis, rank, axes[axis] // known if size is None else size, dims))
    return fixed


def _read_term(profile: Profile, axis: str, term: str) -> tuple[str, tuple[int, ...] | None, int | None]:
    match = _TERM.match(term)
    if match is None or any(len(number) > MOST_DIGITS for number in re.findall(r"\d+", term)):
        raise ProfileError(
            f"links of axis {axis!r}: cannot read {term[:80]!r}; write `dcn`, `ici:0+1` or `dcn=2, ici=4`"
        )
    level = profile.level(match["level"])
    if not match["dims"]:
        dims = None
    else:
        dims = tuple(int(d) for d in match["dims"].split("+"))
        count = level.dims if isinstance(level, TorusLevel) else 0
        if any(d >= count for d in dims):
            raise ProfileError(
                f"links of axis {axis!r}: {term!r} but level {level.name!r} has {count} torus dimensions"
            )
    size = int(match["size"]) if match["size"] else None
    if size == 0:
        raise ProfileError(f"links of axis {axis!r}: a part has at least one device, found {term!r}")
    return level.name, dims, size
