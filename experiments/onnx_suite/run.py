"""The node suite of the onnx package against autoshard's mapping to JAX.

python experiments/onnx_suite/run.py [--only TEXT] [--sharded] [--show] [--every N --first K] [--rows FILE]

Exit code 1 where a case is wrong or ends in an error of ours.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--show", action="store_true", help="name every case that did not pass")
    parser.add_argument("--sharded", action="store_true", help="planned with inputs sharded at random, on 8 devices")
    parser.add_argument("--every", type=int, default=1, help="one case in so many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--rows", type=Path, help="a line of JSON per case; cases that have one are not run again")
    options = parser.parse_args()
    flags = "--xla_backend_optimization_level=0"  # cases are compiled, hardly run
    os.environ.setdefault("XLA_FLAGS", flags + (" --xla_force_host_platform_device_count=8" if options.sharded else ""))
    import jax
    from cases import Outcome, cases, judge, sharded

    began = time.monotonic()
    chosen = [case for name, case in cases().items() if options.only in name][options.first :: options.every]
    done = {row["name"]: Outcome(**row) for row in read_rows(options.rows)}
    outcomes = []
    for number, case in enumerate(chosen):
        outcome = done.get(case.name)
        if outcome is None:
            try:
                outcome = judge(case, sharded if options.sharded else None)
            except Exception as error:  # a case that breaks what it should not break is a result too
                outcome = Outcome(case.name, "error", f"{type(error).__name__}: {error}")
            if options.rows is not None:
                with options.rows.open("a") as rows:
                    rows.write(json.dumps(asdict(outcome)) + "\n")
            if number % 50 == 49:
                jax.clear_caches()  # or the compiled programs of all cases stay in memory
        outcomes.append(outcome)
        tell(outcome, show=options.show)
    counts = Counter(o.kind for o in outcomes)
    print(
        f"{len(outcomes)} cases in {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{n} {k}" for k, n in counts.most_common())
    )
    if options.sharded:
        print(f"{sum(o.kind == 'passed' and o.cut > 0 for o in outcomes)} passed with something cut")
    print(
        "not mapped:",
        ", ".join(
            f"{op} ({n})" for op, n in sorted(Counter(o.text for o in outcomes if o.kind == "not mapped").items())
        ),
    )
    return 1 if counts["wrong"] or counts["error"] else 0


def read_rows(path: Path | None) -> list[dict[str, Any]]:
    """What an earlier run wrote; none where there was none."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def tell(outcome: Any, *, show: bool) -> None:
    """A line about a case that did not pass, as soon as it is known."""
    if outcome.kind in ("wrong", "error") or (show and outcome.kind == "not supported"):
        print(f"{outcome.kind}: {outcome.name}: {outcome.text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
