"""Seconds and bytes for people."""


def seconds_text(seconds: float) -> str:
    """Three digits and a unit.

    >>> seconds_text(0.0123), seconds_text(4.5e-6), seconds_text(0)
    ('12.3 ms', '4.5 us', '0 s')
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds / 1e-9:.3g} ns"


def bytes_text(amount: float) -> str:
    """Binary units, as memory is sold and limited.

    >>> bytes_text(16 * 2**30), bytes_text(1536), bytes_text(7)
    ('16 GiB', '1.5 KiB', '7 B')
    """
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(amount) >= 1024**power:
            value = amount / 1024**power
            return f"{value:.4g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
    return f"{amount:.0f} B"


def count_text(amount: float) -> str:
    """A count that may be a fraction (expected trips).

    >>> count_text(12.0), count_text(2.5)
    ('12', '2.5')
    """
    return f"{amount:.0f}" if float(amount).is_integer() else f"{amount:.3g}"
