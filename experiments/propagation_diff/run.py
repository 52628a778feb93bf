"""Compare our propagation with Shardy's on random modules: text for text.

    python experiments/propagation_diff/run.py --cases 5000

Each seed gives a module and one of eight ways to propagate it. Shardy's passes can end the process on input that
they did not expect; so the cases run in a process of their own, started again behind the case that ended it.
"""

import argparse
import difflib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
WAYS = (
    (None, False),
    ("basic", False),
    ("aggressive", False),
    ("op-priority", False),
    ("user-priority", False),
    ("aggressive", True),
    (None, False),
    ("user-priority", True),
)


def way_of(seed: int) -> tuple[str | None, bool]:
    return WAYS[seed % len(WAYS)]


def oracle_pipeline(strategy: str | None, conservative: bool, edges: bool) -> str:
    if strategy is None:
        return "sdy-propagation-pipeline"
    step = f"sdy-{strategy}-propagate{{conservative-propagation={str(conservative).lower()}}}"
    return f"sdy-add-data-flow-edges,{step},func.func(sdy-sink-data-flow-edges)" if edges else step


def compare(seed: int) -> tuple[str, str]:
    """('equal' | 'different' | 'skipped: why', detail)."""
    from random_module import random_module

    from autoshard.errors import InputError
    from autoshard.frontends.mlir_context import mlir_context, module_text, parse_module, run_passes
    from autoshard.propagation.mlir import needs_edges, propagate_mlir

    strategy, conservative = way_of(seed)
    text = random_module(seed, overlapping_groups=strategy is None)
    module = parse_module(text)
    with mlir_context():
        edges = needs_edges(module)
        try:
            run_passes(module, oracle_pipeline(strategy, conservative, edges))
            wanted = module_text(module)
        except InputError as error:
            wanted = None
            reason = str(error)
    try:
        found = propagate_mlir(text, strategy=strategy, conservative=conservative)
    except InputError as error:
        return ("skipped: both refuse", str(error)) if wanted is None else ("different", f"we refuse: {error}")
    if wanted is None:
        return "different", f"Shardy refuses: {reason}"
    if found == wanted:
        return "equal", ""
    diff = "\n".join(
        difflib.unified_diff(wanted.splitlines(), found.splitlines(), "Shardy", "autoshard", lineterm="", n=0)
    )
    return "different", diff


def worker(first: int, last: int) -> None:
    import traceback

    for seed in range(first, last):
        print(f"start {seed}", flush=True)
        try:
            verdict, detail = compare(seed)
        except Exception:
            verdict, detail = "different", traceback.format_exc()
        print(f"done {seed} {verdict}", flush=True)
        if verdict == "different":
            print("\n".join("| " + line for line in detail.splitlines()[:20]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--worker", nargs=2, type=int)
    args = parser.parse_args()
    if args.worker:
        worker(*args.worker)
        return
    at, end = args.first, args.first + args.cases
    counts: dict[str, int] = {}
    different: list[int] = []
    while at < end:
        command = [sys.executable, __file__, "--worker", str(at), str(end)]
        started = at
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("start "):
                    started = int(line.split()[1])
                elif line.startswith("done "):
                    _, seed, verdict = line.strip().split(" ", 2)
                    counts[verdict] = counts.get(verdict, 0) + 1
                    at = int(seed) + 1
                    if verdict == "different":
                        different.append(int(seed))
                        print(f"seed {seed} {way_of(int(seed))}", flush=True)
                else:
                    print(line.rstrip(), flush=True)
        if at < end and started >= at:
            counts["skipped: process ended"] = counts.get("skipped: process ended", 0) + 1
            print(f"seed {started}: the process ended", flush=True)
            at = started + 1
    print(dict(sorted(counts.items())))
    print("different:", different)


if __name__ == "__main__":
    main()
