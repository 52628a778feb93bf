"""Random programs under random legal plans, judged as in the tests: a seed is a case.

    python experiments/random_programs/run.py [--seeds 0:2200] [--default-options [--form constraints]]

Each case draws a program, a mesh and a plan (from the planner's network, or freely with even or uneven cuts), runs it
on simulated devices, and judges values against the unsharded run, planned = lowered = compiled collectives, that any
two compiled collectives wait for each other, and, for plans of the network, the independent checker's word
(tests/lowering/random_judge.py). Compiled they are without the passes of XLA that merge collectives; with
--default-options as `jax.jit` compiles, and then values alone are judged. Writes results.csv, one row a seed, and
prints the table of README.md; exit code 1 if a case fails.
"""

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "lowering"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "planning"))

from random_judge import judge

HERE = Path(__file__).resolve().parent
FIELDS = ["seed", "way", "mesh", "ops", "planned", "dropped", "failure"]
CHUNK = 50
"""After so many cases a process ends, since compiled programs take memory."""


def case(seed: int, form: str) -> dict[str, object]:
    try:
        found = judge(seed, form)
    except Exception as error:  # every way to fail is a row
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return {"seed": seed, "failure": text[:300]}
    return {
        "seed": seed, "way": found.way, "mesh": found.mesh, "ops": found.ops, "planned": found.planned,
        "dropped": found.dropped, "failure": "",
    }  # fmt: skip


def cases(seeds: Iterable[int], form: str) -> Iterator[dict[str, object]]:
    """A row for each seed, from a process of its own kind: XLA ends the process in which a check of its own fails."""
    left = list(seeds)
    while left:
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=CHUNK) as pool:
            try:
                for seed in list(left):
                    yield pool.submit(case, seed, form).result()
                    left.pop(0)
            except BrokenProcessPool:
                yield {"seed": left.pop(0), "failure": "the process died: a check of XLA's own failed"}


def summary(rows: list[dict[str, object]]) -> str:
    good = [r for r in rows if not r["failure"]]

    def total(key: str) -> int:
        return sum(int(str(r[key])) for r in good)

    lines = [
        f"programs: {len(rows)}, failures: {len(rows) - len(good)}",
        f"ops: {total('ops')}, planned collectives: {total('planned')}, dropped by XLA: {total('dropped')} "
        f"in {sum(int(str(r['dropped'])) > 0 for r in good)} programs",
    ]
    for key in ("way", "mesh"):
        counts = Counter(str(r[key]) for r in good)
        lines.append(f"{key}: " + ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:2200", help="first:last, the last not among them")
    parser.add_argument("--default-options", action="store_true", help="compile as jax.jit does, and judge values only")
    parser.add_argument("--form", default="explicit", help="of the plan, with --default-options")
    parser.add_argument("--output", type=Path, default=HERE / "results.csv")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split(":"))
    rows = []
    with asked.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in cases(range(first, last), asked.form if asked.default_options else ""):
            rows.append(row)
            writer.writerow(row)
            file.flush()
            if row["failure"]:
                print(f"seed {row['seed']}: {row['failure']}", flush=True)
            if len(rows) % CHUNK == 0:
                print(f"{len(rows)} done", flush=True)
    print(summary(rows))
    return int(any(r["failure"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
