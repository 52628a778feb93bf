"""Question: how good are our answers on the IOPDDL contest's instances, how soon, and how close is the bound?

    python experiments/iopddl/run.py FILE.json.gz... --time-limit 60 [--workers 1,2] [--seeds 0:10] [--certificates]
        [--reference reference.json] [--output DIR]
    (--contest-limits takes 60, 120, 180, 240 s for A, G, M, S)

Prints a table (cost, points = best known / cost, bound, gap, seconds, memory; with --certificates the size of each
certificate, the seconds that its checker takes and whether it proves the bound on the file) and writes table.csv and,
where matplotlib is installed, cost_over_time.png into DIR. Each run is a process of its own. Last come, for each file,
the different costs that were called optimal: there must be one at most.
The instances are in google/iopddl (Apache-2.0); the reference file is
{"instances": {"A": {"best_known": ..., "lower_bound": ...}}}.
"""

import argparse
import csv
import itertools
import json
import multiprocessing
import re
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import counts

CONTEST_LIMITS_S = {"A": 60.0, "G": 120.0, "M": 180.0, "S": 240.0}
STARTING_S = 0.4
"""Kept back for starting the process."""


def letter_of(path: str) -> str | None:
    match = re.search(r"iopddl-([A-Z])\b", Path(path).name)
    return match.group(1) if match else None


def judged(path: str, data: bytes | None, status: str) -> dict:
    """The certificate's size, the seconds of its checker and its verdict; the file is read by the checker's reader."""
    from autoshard.verify.certificate import CertificateFault, check_certificate
    from autoshard.verify.certificate.contest import read_network

    if data is None:
        return {"certificate_kb": None, "check_s": None, "certificate": "none"}
    network = read_network(Path(path))
    began = time.monotonic()
    try:
        check_certificate(data, network.costs, network.edges, network.usages, network.limit)
        word = "proved" if status == "optimal" else "bound"
    except CertificateFault as fault:
        word = f"REFUSED: {fault}"
    return {
        "certificate_kb": round(len(data) / 1e3), "check_s": round(time.monotonic() - began, 1), "certificate": word,
    }  # fmt: skip


def run_one(path: str, time_limit_s: float, seed: int, workers: int, certificates: bool) -> dict:
    from autoshard.solver.contest.files import peak_memory_mb, solve_file

    found = solve_file(path, time_limit_s=time_limit_s - STARTING_S, seed=seed, workers=workers)
    solution = found.solution
    checked = found.evaluation is not None and found.evaluation.feasible and found.evaluation.cost == solution.cost
    certified = judged(path, solution.certificate(), solution.status) if certificates else {}
    return {
        "file": Path(path).name,
        "seed": seed,
        "workers": workers,
        **certified,
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


def _or_dash(value: object) -> object:
    """What a run that left no certificate has in place of its size and time."""
    return "-" if value is None else value


def _existing(path: str) -> str:
    if not Path(path).exists():
        raise argparse.ArgumentTypeError(f"{path} does not exist")
    return path


def seeds(text: str) -> range:
    """Seeds from one up to, not including, another: ``0:10``; one number is that seed."""
    first, _, last = text.partition(":")
    if not all(number.isdecimal() and len(number) < 10 for number in (first, last or "1")):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds such as 0:10")
    return range(int(first), int(last or int(first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=_existing)
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S")
    parser.add_argument("--contest-limits", action="store_true")
    parser.add_argument(
        "--seeds", type=seeds, default="0:1", metavar="A:B", help="seeds from A up to, not including, B"
    )
    parser.add_argument(
        "--workers", type=counts, default="2", help="cores to search on; several numbers with commas run one by one"
    )
    parser.add_argument("--certificates", action="store_true", help="have the certificate of every run judged")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--output", type=Path, default=Path("out/iopddl"))
    options = parser.parse_args()
    reference = json.loads(options.reference.read_text()) if options.reference else {}
    context = multiprocessing.get_context("spawn")
    rows = []
    print(
        f"{'file':34} {'seed':>4} {'w':>2} {'status':9} {'cost':>15} {'points':>9} {'bound':>15} {'gap':>9} {'s':>6} "
        f"{'MB':>6}" + (f" {'KB':>5} {'check s':>7} certificate" if options.certificates else "")
    )
    runs = [(seed, workers) for workers in options.workers for seed in options.seeds]
    for path, (seed, workers) in itertools.product(options.files, runs):
        limit_s = CONTEST_LIMITS_S.get(letter_of(path) or "", 60.0) if options.contest_limits else options.time_limit
        with context.Pool(1) as pool:
            row = pool.apply(run_one, (path, limit_s, seed, workers, options.certificates))
        best = reference_of(path, reference).get("best_known")
        row["points"] = round(best / row["cost"], 6) if best and row["cost"] else None
        rows.append(row)
        gap = "-" if row["gap"] is None else f"{row['gap']:.5%}"
        print(
            f"{row['file'][:34]:34} {seed:>4} {workers:>2} {row['status']:9} {row['cost'] or '-':>15} "
            f"{row['points'] or '-':>9} {row['bound']:>15} {gap:>9} {row['seconds']:>6} {row['memory_mb']:>6}"
            + (
                f" {_or_dash(row['certificate_kb']):>5} {_or_dash(row['check_s']):>7} {row['certificate']}"
                if options.certificates
                else ""
            ),
            flush=True,
        )
    for path in options.files:
        own = [row for row in rows if row["file"] == Path(path).name]
        optimal = sorted({row["cost"] for row in own if row["status"] == "optimal"})
        below = [row["cost"] for row in own if row["cost"] and optimal and row["cost"] < optimal[0]]
        words = "no two differ" if len(optimal) <= 1 and not below else "THEY DISAGREE"
        proved = sum(row["status"] == "optimal" for row in own)
        print(f"{Path(path).name}: optimal in {proved} of {len(own)} runs, at {optimal or '-'}: {words}")
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "table.csv").open("w", newline="") as file:
        writer = csv.DictWriter(
            file,
            [
                "file",
                "seed",
                "workers",
                "status",
                "cost",
                "points",
                "bound",
                "gap",
                "seconds",
                "memory_mb",
                "certificate_kb",
                "check_s",
                "certificate",
            ],
            extrasaction="ignore",
        )
        writer.writeheader()
        writer.writerows(rows)
    plot(rows, options.output / "cost_over_time.png")


if __name__ == "__main__":
    main()
