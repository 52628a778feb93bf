"""Amounts with units, as people write them: ``14GiB``, ``90%``, ``10 min``."""

import math
import re
import sys
from dataclasses import dataclass
from typing import Literal

from autoshard.errors import InputError

_AMOUNT = re.compile(r"^\s*(?P<number>[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*(?P<unit>[A-Za-z%]*)\s*$")
BYTES = {
    "B": 1,
    **{f"{p}B": 1000**k for k, p in enumerate(("k", "M", "G", "T"), 1)},
    "KB": 1000,
    **{f"{p}iB": 1024**k for k, p in enumerate(("K", "M", "G", "T"), 1)},
}
SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class MemoryAmount:
    """Bytes, or a fraction of a device's memory; exactly one is given.

    >>> memory_amount("14GiB").of(hbm_bytes=16e9), memory_amount("50%").of(hbm_bytes=16e9)
    (15032385536, 8000000000)
    """

    bytes: int | None = None
    fraction: float | None = None

    def of(self, hbm_bytes: float) -> int:
        """Bytes on a device that has `hbm_bytes` of memory, rounded down."""
        return self.bytes if self.bytes is not None else math.floor((self.fraction or 0.0) * hbm_bytes)


def memory_amount(given: object) -> MemoryAmount:
    """``14GiB``, a number of bytes, ``90%``, or a fraction such as 0.9 of the device's memory."""
    if isinstance(given, MemoryAmount):
        return given
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise InputError(f"expected an amount of memory such as 14GiB or 90%, found {given!r}")
    if isinstance(given, int):
        return MemoryAmount(bytes=_whole_bytes(given, as_given(given)))
    if isinstance(given, float):
        if 0 < given <= 1:
            return MemoryAmount(fraction=given)
        if given > 1 and given.is_integer():
            return MemoryAmount(bytes=_whole_bytes(given, f"{given:g}"))
        raise InputError(f"expected bytes, or a fraction between 0 and 1 of the device's memory, found {given:g}")
    number, unit = _split(given, "an amount of memory such as 14GiB, 16e9 B or 90%")
    if unit == "%":
        if not 0 < number <= 100:
            raise InputError(f"a share of the device's memory lies above 0% and at most at 100%, found {given}")
        return MemoryAmount(fraction=number / 100)
    if unit not in BYTES:
        lower = {u.lower(): u for u in BYTES}
        near = lower.get(unit.lower()) or lower.get(unit.lower() + "b")
        hint = f"did you mean {near}? " if near else ""
        raise InputError(f"unknown unit {unit!r} in {given!r}; {hint}units are {', '.join(BYTES)} and %")
    return MemoryAmount(bytes=_whole_bytes(number * BYTES[unit], given))


def as_given(given: object) -> str:
    """What a caller gave, for messages; Python writes no integer of thousands of digits.

    >>> as_given("14 GiG"), as_given(-3), as_given(10**5000)
    ("'14 GiG'", '-3', 'an integer of 16610 bits')
    """
    if isinstance(given, int) and given.bit_length() > 128:
        return f"an integer of {given.bit_length()} bits"
    return repr(given)


def _whole_bytes(amount: float, found: str) -> int:
    """Bytes, rounded down; `InputError` where they are none, or more than 64 bits count. found: as it was written."""
    if amount < 1:
        raise InputError(f"an amount of memory is positive, found {found}")
    if amount >= 2**63:
        raise InputError(f"an amount of memory is below 2^63 bytes, found {found}")
    return int(amount)


NO_LIMIT: Literal["none"] = "none"
"""The word that lifts the memory limit; without it, and with no limit stated, the device's memory is the limit."""


def limit_amount(given: object) -> MemoryAmount | Literal["none"]:
    """A memory limit: an amount, or ``none`` for no limit at all."""
    if isinstance(given, str) and given.strip().lower() == NO_LIMIT:
        return NO_LIMIT
    return memory_amount(given)


def seconds(given: object) -> float:
    """A number of seconds, or text with a unit: ``90 s``, ``10min``, ``1.5 h``."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        number, unit = (float(given) if given <= sys.float_info.max else math.inf), "s"
    elif isinstance(given, str):
        number, unit = _split(given, "a time such as 60, 90s or 10min")
    else:
        raise InputError(f"expected a time such as 60, 90s or 10min, found {given!r}")
    if unit not in SECONDS:
        raise InputError(f"unknown unit {unit!r} in {given!r}; units are {', '.join(SECONDS)}")
    total = number * SECONDS[unit]
    if not (0 < total < math.inf):
        found = given if isinstance(given, str) else as_given(given)
        raise InputError(f"a time limit is a positive number of seconds, found {found}")
    return total


def _split(text: str, wanted: str) -> tuple[float, str]:
    match = _AMOUNT.match(text)
    if match is None or (not match["unit"] and wanted.startswith("an amount") and "." in match["number"]):
        raise InputError(f"expected {wanted}, found {text!r}")
    return float(match["number"].replace("_", "")), match["unit"] or ("B" if wanted.startswith("an amount") else "s")


def seconds_text(seconds: float) -> str:
    """Seconds as text: three digits and a unit.

    >>> seconds_text(0.0123), seconds_text(4.5e-6), seconds_text(0)
    ('12.3 ms', '4.5 us', '0 s')
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds / 1e-9:.3g} ns"


def counted(count: int, name: str, names: str | None = None) -> str:
    """A number of things in words; names: of several of them.

    >>> counted(1, "leaf", "leaves"), counted(3, "decision")
    ('1 leaf', '3 decisions')
    """
    return f"{count} {name if count == 1 else names or name + 's'}"
