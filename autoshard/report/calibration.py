"""A calibration as a person reads it: what was fitted, and how well it holds."""

from collections.abc import Mapping, Sequence
from typing import Any

from autoshard.report.amounts import seconds_text
from autoshard.report.plan_tables import plain_table, stdout_console


def _programs(points: Sequence[Mapping[str, Any]]) -> Any:
    table = plain_table(
        "programs on one device", [("program", ""), ("step", "right"), ("by the fitted numbers", "right")]
    )
    for point in points:
        ratio = point["fitted_s"] / point["seconds"] - 1
        table.add_row(point["program"], seconds_text(point["seconds"]), f"{ratio:+.0%}")
    return table


def show_calibration(calibration: Mapping[str, Any]) -> None:
    """Print the fits (data of `Calibration.to_dict`) on standard output."""
    mesh = " x ".join(f"{axis}={size}" for axis, size in calibration["mesh"].items())
    console = stdout_console()
    console.print(f"{calibration['devices']} x {calibration['device_kind']}, mesh {mesh}")
    table = plain_table(
        "rates of one device while all are busy",
        [("what", ""), ("per second", "right"), ("latency", "right"), ("points", "right"), ("rms error", "right"),
         ("worst", "right")],
    )  # fmt: skip
    rows = [(name, fit, "B" if name == "memory" else "FLOP") for name, fit in calibration["work"].items()]
    rows += [(f"link {name}", fit, "B") for name, fit in calibration["levels"].items()]
    for name, fit, unit in rows:
        table.add_row(
            name, f"{fit['rate']:.4g} {unit}", seconds_text(fit["latency_s"]), str(fit["points"]),
            f"{fit['rms_relative_error']:.0%}", f"{fit['worst_relative_error']:.0%}",
        )  # fmt: skip
    console.print(table)
    for name, fit in calibration["levels"].items():
        if fit.get("kinds"):
            factors = ", ".join(f"{kind} {factor:.2f}" for kind, factor in fit["kinds"].items())
            console.print(f"link {name}, time over that of all-gathers at the same bytes on a link: {factors}")
    if points := calibration["programs"]:
        console.print(_programs(points))
        offs = sorted(abs(p["fitted_s"] / p["seconds"] - 1) for p in points)
        console.print(
            f"the speed of compiled work: {len(points)} programs, {offs[len(offs) // 2]:.0%} off in the median"
        )
    for line in calibration["skipped"]:
        console.print(f"note: {line}")
