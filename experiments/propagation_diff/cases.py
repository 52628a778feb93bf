"""Run numbered cases in a process of their own, started again behind a case that ended it.

Shardy's passes and MLIR's parser can end the process on input that they did not expect. A script's worker mode prints
``start N`` and ``done N VERDICT`` lines; anything else that it prints is passed on.
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def work(first: int, last: int, compare: Callable[[int], tuple[str, str]]) -> None:
    """The worker: compare every case; detail is printed for verdicts that start with ``different``."""
    for seed in range(first, last):
        print(f"start {seed}", flush=True)
        try:
            verdict, detail = compare(seed)
        except Exception:
            verdict, detail = "different", traceback.format_exc()
        print(f"done {seed} {verdict}", flush=True)
        if verdict.startswith("different"):
            print("\n".join("| " + line for line in detail.splitlines()[:20]), flush=True)


def run(script: str, first: int, cases: int, *more: str) -> tuple[dict[str, int], list[int]]:
    """Counts of verdicts, and the seeds that differ."""
    at, end = first, first + cases
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    env = {**os.environ, "PYTHONPATH": path}
    counts: dict[str, int] = {}
    different: list[int] = []
    while at < end:
        command = [sys.executable, script, *more, "--worker", str(at), str(end)]
        started = at
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("start "):
                    started = int(line.split()[1])
                elif line.startswith("done "):
                    _, seed, verdict = line.strip().split(" ", 2)
                    counts[verdict] = counts.get(verdict, 0) + 1
                    at = int(seed) + 1
                    if verdict.startswith("different"):
                        different.append(int(seed))
                        print(f"seed {seed}: {verdict}", flush=True)
                else:
                    print(line.rstrip(), flush=True)
        if at < end and started >= at:
            counts["skipped: process ended"] = counts.get("skipped: process ended", 0) + 1
            print(f"seed {started}: the process ended", flush=True)
            at = started + 1
    return dict(sorted(counts.items())), different
