"""Every single-node case of ONNX's own test suite under random annotations, judged device by device.

    python experiments/onnx_judge/run.py [--seeds 0:3]

A seed is a random annotation of every case over 2x2x3 devices (`tests/onnx/judged_cases.py`). What `check` lets pass is
completed by inference and run by an interpreter of its own (`tests/onnx/device_judge.py`): every device runs the op on
its blocks by the reference evaluator, and must get its blocks of the expected outputs. Exit code 1 if one does not.
"""

import argparse
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "onnx"))

from judged_cases import judge_all, small_cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:3", help="first and last but one")
    first, last = map(int, parser.parse_args().seeds.split(":"))
    warnings.simplefilter("ignore")
    tally = judge_all(range(first, last))
    runs = sum(tally.counts.values())
    print(f"{runs} runs of {len(small_cases())} cases; {len(tally.ops)} operators were cut and right")
    for name, count in sorted(tally.counts.items()):
        print(f"{count:6d} {name}")
    for line in tally.wrong:
        print(line)
    return int(tally.counts["WRONG"] > 0)


if __name__ == "__main__":
    sys.exit(main())
