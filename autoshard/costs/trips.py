"""How often the bodies of loops run."""

from autoshard.program.program import Op


def body_trips(op: Op, region: int, trips: int = 1) -> int:
    """How often a region of `op` runs: the length of a scan; `trips` for a while loop whose own count is not known.

    The condition of a while loop (region 0) runs once more than its body.
    """
    if op.kind == "scan":
        return int(op.attrs["length"])
    if op.kind == "while":
        known = op.attrs.get("trips")
        return (trips if known is None else int(known)) + (region == 0)
    return 1
