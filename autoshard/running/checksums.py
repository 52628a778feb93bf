"""Checksums of arrays that lie on many processes. No JAX is imported, because the parent of a group does without."""

from collections.abc import Iterable


def combined(parts: Iterable[tuple[int, float, float, float]]) -> dict[str, float]:
    """Checksums of a whole array from the parts of all processes, added in the order of the devices.

    parts: device id, sum, sum of squares and largest magnitude of each shard.
    """
    total, squares, largest = 0.0, 0.0, 0.0
    for _, part, part_squares, part_largest in sorted(parts):
        total += part
        squares += part_squares
        largest = max(largest, part_largest) if part_largest == part_largest else part_largest
    return {"sum": total, "l2": squares**0.5, "max_abs": largest}
