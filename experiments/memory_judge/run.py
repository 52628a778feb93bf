"""Planned peaks beside what the TPU compiler holds, for programs with donation, loops and caches.

    python experiments/memory_judge/run.py [NAME...] [--chip tpu_v5e]    # rows.csv; needs libtpu, no TPU
    python experiments/memory_judge/run.py --report                      # the rows as Markdown, the worst first

Plans are made without a limit for four devices (data=2 x model=2), and compiled ahead of time as they are lowered.
Rows that are there are made again where they are named, or with `--again`.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

ROWS = HERE / "rows.csv"
COLUMNS: Sequence[str] = ("name", "chip", "planned", "held", "ratio")
MIB = 2**20


def stored() -> dict[tuple[str, str], dict[str, str]]:
    """The rows by name and chip."""
    if not ROWS.exists():
        return {}
    with ROWS.open(newline="") as file:
        return {(row["name"], row["chip"]): row for row in csv.DictReader(file)}


def asked(name: str, chip: str) -> dict[str, str]:
    """Plan and compile one program."""
    from programs import cases

    import autoshard
    from autoshard.api.simulate import simulate

    function, specs, donated = cases()[name]
    plan = autoshard.plan(
        function, *specs, mesh={"data": 2, "model": 2}, hardware=chip, donate_argnums=donated, memory_limit="none",
        time_limit="60s",
    )  # fmt: skip
    planned = plan.memory.peak_bytes
    try:
        held = simulate(plan, compiler="tpu").peak_bytes
    except autoshard.UnsupportedError as error:
        return {"name": name, "chip": chip, "planned": str(planned), "held": f"refused: {error}"[:80], "ratio": ""}
    assert held is not None
    return {"name": name, "chip": chip, "planned": str(planned), "held": str(held), "ratio": f"{held / planned:.3f}"}


def report() -> None:
    """Print the rows, those that hold most beyond their plan first."""
    rows = sorted(stored().values(), key=lambda row: -float(row["ratio"] or 0.0))
    print("| program | chip | planned MiB | held MiB | held / planned |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        held = f"{int(row['held']) / MIB:.0f}" if row["ratio"] else row["held"]
        print(f"| {row['name']} | {row['chip']} | {int(row['planned']) / MIB:.0f} | {held} | {row['ratio']} |")
    ratios = [float(row["ratio"]) for row in rows if row["ratio"]]
    for least, most in ((0.95, 1.05), (0.85, 1.15)):
        print(f"within {least:g} to {most:g}: {sum(least <= r <= most for r in ratios)} of {len(ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--chip", default="tpu_v5e")
    parser.add_argument("--again", action="store_true", help="make rows that are there, too")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        return report()
    from autoshard.simulation import ahead

    ahead.prepare()
    from programs import cases

    if unknown := set(arguments.names) - set(cases()):
        parser.error(f"no program {min(unknown)!r}; there are {', '.join(cases())}")
    for name in arguments.names or cases():
        if (name, arguments.chip) in stored() and not (arguments.again or arguments.names):
            continue
        row = asked(name, arguments.chip)
        rows = {**stored(), (name, arguments.chip): row}
        with ROWS.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(sorted(rows.values(), key=lambda r: (r["chip"], list(cases()).index(r["name"]))))
        print(row, flush=True)


if __name__ == "__main__":
    main()
