"""How long do models of full size take to plan, and in how much memory?

    python experiments/full_size/run.py [configs/llama3_8b.yaml ...] [--output results.csv]

Each config is solved by `autoshard solve` in a process of its own; the table gives wall and CPU seconds of the whole
command (tracing
and imports included), the largest resident memory of it and its children, and what the plan claims.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = [
    ROOT / "configs" / f"{name}.yaml" for name in ("llama3_8b", "llama3_70b", "llama3_405b", "mixtral_8x7b", "resnet50")
]


def measure(config: Path) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [sys.executable, "-m", "autoshard", "solve", str(config), "--output", directory]
        done = subprocess.run(command, capture_output=True, text=True)
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        row: dict[str, object] = {
            "config": config.stem,
            "wall_s": round(wall, 1),
            "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
            "memory_GiB": round(after.ru_maxrss / 2**20, 2),  # the largest of all children so far
            "exit": done.returncode,
        }
        if done.returncode == 0:
            plan = json.loads((Path(directory) / "plan.json").read_text())
            row |= {
                "status": plan["status"], "step_s": plan["objective_s"], "bound_s": plan["bound_s"], "gap": plan["gap"],
                "peak_GiB": round(plan["memory"]["peak_bytes"] / 2**30, 2),
                "stopped": "; ".join(n for n in plan["notes"] if "stopped" in n or "accepted" in n),
            }  # fmt: skip
        else:
            print(done.stderr, file=sys.stderr)
        return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", type=Path, default=CONFIGS)
    parser.add_argument("--output")
    given = parser.parse_args()
    rows = []
    for config in given.configs:
        rows.append(measure(config))
        print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    if given.output:
        table.to_csv(given.output, index=False)
    print(table.to_string(index=False))
    return 0 if (table["exit"] == 0).all() else 1


if __name__ == "__main__":
    sys.exit(main())
