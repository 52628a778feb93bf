"""Question: how good are our answers on the IOPDDL contest's instances, how soon, and how close is the bound?

    python experiments/iopddl/run.py FILE.json.gz... --time-limit 60 [--workers 2] [--reference reference.json]
        [--output DIR]
    (--contest-limits takes 60, 120, 180, 240 s for A, G, M, S)

Prints a table (cost, points = best known / cost, bound, gap, seconds, memory) and writes table.csv and, where
matplotlib is installed, cost_over_time.png into DIR. Each file runs in a process of its own.
The instances are in google/iopddl (Apache-2.0); the reference file is
{"instances": {"A": {"best_known": ..., "lower_bound": ...}}}.
"""

import argparse
import csv
import json
import multiprocessing
import re
from pathlib import Path

CONTEST_LIMITS_S = {"A": 60.0, "G": 120.0, "M": 180.0, "S": 240.0}
STARTING_S = 0.4
"""Kept back for starting the process."""


def letter_of(path: str) -> str | None:
    match = re.search(r"iopddl-([A-Z])\b", Path(path).name)
    return match.group(1) if match else None


def run_one(path: str, time_limit_s: float, seed: int, workers: int) -> dict:
    from autoshard.solver.contest import peak_memory_mb, solve_file

    found = solve_file(path, time_limit_s=time_limit_s - STARTING_S, seed=seed, workers=workers)
    solution = found.solution
    checked = found.evaluation is not None and found.evaluation.feasible and found.evaluation.cost == solution.cost
    return {
        "file": Path(path).name,
        "status": solution.status,
        "cost": solution.cost if checked else None,
        "bound": solution.lower_bound,
        "gap": solution.gap,
        "seconds": round(found.parse_s + solution.stats["seconds"], 1),
        "memory_mb": peak_memory_mb(),
        "trace": [(round(found.parse_s + seconds, 2), cost) for seconds, cost in solution.trace],
    }


def reference_of(path: str, reference: dict) -> dict:
    return reference.get("instances", {}).get(letter_of(path), {})


def plot(rows: list[dict], target: Path) -> None:
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no plot")
        return
    figure, axes = plt.subplots(figsize=(8, 5))
    for row in rows:
        if row["trace"]:
            seconds, costs = zip(*row["trace"], strict=True)
            last = costs[-1]
            axes.step([*seconds, row["seconds"]], [*(c / last for c in costs), 1.0], where="post", label=row["file"])
    axes.set(xlabel="seconds, reading included", ylabel="cost / final cost", yscale="log")
    axes.legend()
    figure.savefig(target, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S")
    parser.add_argument("--contest-limits", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--output", type=Path, default=Path("out/iopddl"))
    options = parser.parse_args()
    reference = json.loads(options.reference.read_text()) if options.reference else {}
    context = multiprocessing.get_context("spawn")
    rows = []
    print(f"{'file':34} {'status':9} {'cost':>15} {'points':>9} {'bound':>15} {'gap':>9} {'s':>6} {'MB':>6}")
    for path in options.files:
        limit_s = CONTEST_LIMITS_S.get(letter_of(path) or "", 60.0) if options.contest_limits else options.time_limit
        with context.Pool(1) as pool:
            row = pool.apply(run_one, (path, limit_s, options.seed, options.workers))
        best = reference_of(path, reference).get("best_known")
        row["points"] = round(best / row["cost"], 6) if best and row["cost"] else None
        rows.append(row)
        gap = "-" if row["gap"] is None else f"{row['gap']:.5%}"
        print(
            f"{row['file'][:34]:34} {row['status']:9} {row['cost'] or '-':>15} {row['points'] or '-':>9} "
            f"{row['bound']:>15} {gap:>9} {row['seconds']:>6} {row['memory_mb']:>6}",
            flush=True,
        )
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "table.csv").open("w", newline="") as file:
        writer = csv.DictWriter(
            file, ["file", "status", "cost", "points", "bound", "gap", "seconds", "memory_mb"], extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows(rows)
    plot(rows, options.output / "cost_over_time.png")


if __name__ == "__main__":
    main()
