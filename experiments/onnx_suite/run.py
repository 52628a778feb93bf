"""The node suite of the onnx package against autoshard's mapping to JAX.

python experiments/onnx_suite/run.py [--only TEXT] [--sharded] [--show]
"""

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--show", action="store_true", help="name every case that did not pass")
    parser.add_argument("--sharded", action="store_true", help="planned with inputs sharded at random, on 8 devices")
    parser.add_argument("--every", type=int, default=1, help="one case in so many")
    options = parser.parse_args()
    flags = "--xla_backend_optimization_level=0"  # cases are compiled, hardly run
    os.environ.setdefault("XLA_FLAGS", flags + (" --xla_force_host_platform_device_count=8" if options.sharded else ""))
    from cases import cases, judge, sharded

    began = time.monotonic()
    chosen = [case for name, case in cases().items() if options.only in name][:: options.every]
    outcomes = [judge(case, sharded if options.sharded else None) for case in chosen]
    counts = Counter(o.kind for o in outcomes)
    print(
        f"{len(outcomes)} cases in {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{n} {k}" for k, n in counts.most_common())
    )
    print(
        "not mapped:",
        ", ".join(
            f"{op} ({n})" for op, n in sorted(Counter(o.text for o in outcomes if o.kind == "not mapped").items())
        ),
    )
    for o in outcomes:
        if o.kind in ("wrong", "error") or (options.show and o.kind == "not supported"):
            print(f"{o.kind}: {o.name}: {o.text}")


if __name__ == "__main__":
    main()
