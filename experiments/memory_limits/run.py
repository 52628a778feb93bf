"""Small programs under memory limits: is every refusal a proof, and how far is every plan from its bound?

    python experiments/memory_limits/run.py [--programs "mlp,chain of 4"] [--time-limit 60] [--cpu-seconds]

Plans each of twenty programs on three meshes, without a limit and within 90, 75, 50 and 30% of that plan's peak,
through `autoshard.plan`. Writes results/rows.csv, one row a case; cases that are there already are not run again.
It prints the table of README.md.
"""

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from programs import MESHES, PROGRAMS, SHARES

import autoshard
from autoshard.errors import InfeasibleError, OutOfTimeError

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import names_of

ROWS = Path(__file__).resolve().parent / "results" / "rows.csv"
FIELDS = ["program", "mesh", "share", "limit_bytes", "outcome", "step_ms", "gap", "peak_bytes", "seconds", "free_ms"]


def cases(name: str, mesh: str, time_limit: float, done: set[tuple[str, str, str]]) -> Iterator[dict[str, object]]:
    function, specs, options = PROGRAMS[name]
    axes, hardware = MESHES[mesh]
    if all((name, mesh, str(share)) in done for share in SHARES):
        return
    free = autoshard.plan(function, *specs, mesh=axes, hardware=hardware, **options)
    for share in SHARES:
        if (name, mesh, str(share)) in done:
            continue
        limit = int(free.memory.peak_bytes * share)
        row: dict[str, object] = {
            "program": name, "mesh": mesh, "share": share, "limit_bytes": limit, "free_ms": free.cost.step_s * 1e3,
        }  # fmt: skip
        began = time.monotonic()
        try:
            plan = autoshard.plan(
                function, *specs, mesh=axes, hardware=hardware, memory_limit=limit, time_limit=time_limit, **options
            )
            assert plan.memory.peak_bytes <= limit
            row |= {
                "outcome": plan.status, "step_ms": plan.cost.step_s * 1e3, "gap": plan.gap,
                "peak_bytes": plan.memory.peak_bytes,
            }  # fmt: skip
        except InfeasibleError as error:
            row["outcome"] = "refused, proved" if (error.facts or {}).get("proved") else "refused, not proved"
        except OutOfTimeError:
            row["outcome"] = "none found"
        row["seconds"] = round(time.monotonic() - began, 2)
        yield row


def told(rows: list[dict[str, str]]) -> str:
    outcomes = [row["outcome"] for row in rows]
    plans = [row for row in rows if row["step_ms"]]
    gaps = [float(row["gap"]) for row in plans]
    seconds = [float(row["seconds"]) for row in rows]
    optimal = outcomes.count("optimal")
    return "\n".join(
        [
            "| | |",
            "| --- | --- |",
            f"| cases | {len(rows)} |",
            f"| refused, proved | {outcomes.count('refused, proved')} |",
            f"| refused, not proved | {outcomes.count('refused, not proved')} |",
            f"| none found in the time | {outcomes.count('none found')} |",
            f"| plans | {len(plans)} |",
            f"| proved optimal | {optimal} ({optimal / max(1, len(plans)):.0%}) |",
            f"| within 0.1%, or proved | {sum(gap <= 0.00101 for gap in gaps)} |",
            f"| gap above 2% | {sum(gap > 0.02 for gap in gaps)} |",
            f"| largest gap | {max(gaps, default=0.0):.2%} |",
            f"| longest | {max(seconds, default=0.0):.0f} s |",
            f"| beyond 10 s | {sum(s > 10 for s in seconds)} |",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=names_of(PROGRAMS, "program"), default=",".join(PROGRAMS))
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for one plan")
    parser.add_argument(
        "--cpu-seconds", action="store_true",
        help="count seconds of this process's own work, time limits too: for a machine that does other work as well",
    )  # fmt: skip
    parser.add_argument("--rows", type=Path, default=ROWS, help="where the rows are kept")
    options = parser.parse_args()
    rows_file = options.rows
    if options.cpu_seconds:
        time.monotonic = time.process_time
    rows_file.parent.mkdir(exist_ok=True)
    rows = list(csv.DictReader(rows_file.open())) if rows_file.exists() else []
    done = {(row["program"], row["mesh"], row["share"]) for row in rows}
    if not rows:
        with rows_file.open("w", newline="") as file:
            csv.DictWriter(file, FIELDS, lineterminator="\n").writeheader()
    for name in options.programs:
        for mesh in MESHES:
            for row in cases(name, mesh, options.time_limit, done):
                with rows_file.open("a", newline="") as file:
                    csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(row)
                print(*(row.get(field, "") for field in FIELDS), sep="  ", flush=True)
    print(told(list(csv.DictReader(rows_file.open()))))


if __name__ == "__main__":
    main()
