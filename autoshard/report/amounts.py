"""Seconds and bytes for people."""

import re

from autoshard.units import seconds_text

__all__ = ["above_text", "bytes_text", "count_text", "seconds_text", "units_text"]


def bytes_text(amount: float) -> str:
    """Bytes in binary units (KiB, MiB, ...), as memory is limited.

    >>> bytes_text(16 * 2**30), bytes_text(1536), bytes_text(7)
    ('16 GiB', '1.5 KiB', '7 B')
    """
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(amount) >= 1024**power:
            value = amount / 1024**power
            return f"{value:.4g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
    return f"{amount:.0f} B"


def units_text(sentence: str) -> str:
    """A sentence for tables and pages: the bytes that it counts in full are told in binary units.

    >>> units_text("at least 86652887048 bytes are live at once, the limit is 14602888806 bytes")
    'at least 80.7 GiB are live at once, the limit is 13.6 GiB'
    """
    return re.sub(r"\b(\d{4,}) bytes\b", lambda found: bytes_text(int(found[1])), sentence)


def count_text(amount: float) -> str:
    """A count that may be a fraction (expected trips).

    >>> count_text(12.0), count_text(2.5)
    ('12', '2.5')
    """
    return f"{amount:.0f}" if float(amount).is_integer() else f"{amount:.3g}"


def above_text(seconds: float, other: float, digits: int = 1) -> str:
    """By what share some seconds are above others; empty beside nothing, as of a program that only hands on.

    >>> above_text(1.5, 1.0), above_text(0.0, 0.0)
    ('+50.0%', '')
    """
    return f"{seconds / other - 1:+.{digits}%}" if other > 0 else ""
