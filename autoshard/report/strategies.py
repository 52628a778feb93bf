"""Strategies side by side, as a table and as a plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoshard.errors import InputError
from autoshard.report.amounts import bytes_text, seconds_text, units_text
from autoshard.report.plan_tables import plain_table, stdout_console

Json = Mapping[str, Any]

PLOTS = (".png", ".svg", ".pdf")
"""Endings of the files that plots can be written to."""


def print_sweep(keys: Sequence[str], rows: Sequence[Json]) -> None:
    """Print the rows of a sweep as a table, the quickest step marked."""
    table = plain_table(
        "",
        [*((key, "") for key in keys), ("step", "right"), ("MFU", "right"), ("gap", "right"), ("memory", "right"),
         ("seconds", "right"), ("", "")],
    )  # fmt: skip
    quickest = min((row["step_s"] for row in rows if row["step_s"] is not None), default=None)
    for row in rows:
        step, mfu, gap, peak = row["step_s"], row["mfu"], row["gap"], row["peak_bytes"]
        why = units_text((row["reason"] or "").split("\n")[0])
        table.add_row(
            *(row[key] for key in keys), row["status"] if step is None else seconds_text(step),
            "" if mfu is None else f"{mfu:.1%}", "" if gap is None else f"{gap:.2%}",
            "" if peak is None else bytes_text(peak), f"{row['seconds']:.1f}",
            "quickest" if step is not None and step == quickest else why[:60],
        )  # fmt: skip
    stdout_console().print(table)


def print_comparison(data: Json) -> None:
    """Print what `compare --json` prints, as a table."""
    mesh = " x ".join(f"{axis}={size}" for axis, size in data["mesh"].items())
    console = stdout_console()
    console.print(f"{data['program']} on {data['hardware']}, mesh {mesh}")
    limit = data["memory_limit"]
    room = " (within the room of the device)" if data.get("device_limit") else ""
    within = f" within {bytes_text(limit)} per device" if limit is not None and not room else ""
    if all(row["objective_s"] is None for row in data["strategies"]):
        console.print(f"none of these has a plan{within}{room}")
    else:
        console.print(f"no plan{within} takes less than {seconds_text(data['bound_s'])}{room}")
    table = plain_table(
        "",
        [("strategy", ""), ("step", "right"), ("regret", "right"), ("memory", "right"), ("seconds", "right"), ("", "")],
    )
    for row in data["strategies"]:
        cost, regret, peak = row["objective_s"], row["regret"], row["peak_bytes"]
        name = row["strategy"] if row["kind"] == "strategy" else f"{row['strategy']} ({row['kind']})"
        table.add_row(
            name, row["status"] if cost is None else seconds_text(cost), "" if regret is None else f"{regret:.2%}",
            "" if peak is None else bytes_text(peak), f"{row['seconds']:.2f}",
            units_text(row["reason"]) or (row["status"] if row["status"] != "found" else ""),
        )  # fmt: skip
    console.print(table)


def check_plot(path: Path) -> None:
    """Raise `InputError` where no plot can be written to this file: its ending, or matplotlib is missing."""
    from importlib.util import find_spec

    if path.suffix.lower() not in PLOTS:
        raise InputError(f"--plot {path}: write to a file that ends with {', '.join(PLOTS)}")
    if find_spec("matplotlib") is None:
        raise InputError("--plot needs matplotlib, which is not installed: pip install 'autoshard[plot]'")


def write_plot(path: Path, data: Json) -> None:
    """Write a plot to `path`: bars of step time beside the bound and of memory, for every strategy that has a plan."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from autoshard.files import write_bytes

    rows = [row for row in data["strategies"] if row["objective_s"] is not None]
    names = [row["strategy"] for row in rows]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 0.4 * len(rows) + 1.6), sharey=True)
    left.barh(names, [row["objective_s"] for row in rows])
    left.axvline(data["bound_s"], color="black", linestyle="--", linewidth=1, label="proven bound")
    left.set_xlabel("seconds per step")
    left.legend(loc="lower right", fontsize="small")
    right.barh(names, [row["peak_bytes"] / 2**30 for row in rows], color="tab:gray")
    right.set_xlabel("GiB per device at the peak")
    if data["memory_limit"] is not None and not data.get("device_limit"):
        right.axvline(data["memory_limit"] / 2**30, color="black", linestyle="--", linewidth=1)
    left.invert_yaxis()
    figure.suptitle(f"{data['program']} on {data['hardware']}", fontsize="medium")
    figure.tight_layout()
    stream = io.BytesIO()
    figure.savefig(stream, format=path.suffix[1:].lower(), metadata=_NO_DATE.get(path.suffix.lower()))
    pyplot.close(figure)
    write_bytes(path, stream.getvalue())


_NO_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""Metadata that leaves the date out, so that the same data give the same file."""
