"""Step times of published training runs beside the closed-form bounds and estimate.

    python experiments/training_runs/run.py            # table by source; exit code 1 where a lower bound is exceeded
    python experiments/training_runs/run.py --all      # one line a run
    python experiments/training_runs/fit.py            # the shares of the peak that runs reach, and sources held out
    python experiments/training_runs/sharded.py        # what software added to sharded weights, from other sources

`runs.csv` has what was published and how each step time follows from it; README.md names the sources.
"""

import argparse
import csv
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from scipy.stats import spearmanr  # noqa: E402

from autoshard.costmodels.strategy_questions import StrategyAnswer, ask_strategy  # noqa: E402


@dataclass(frozen=True)
class Run:
    """A published run: what was asked of the cost model, and the published seconds of a step."""

    row: dict[str, str]
    answer: StrategyAnswer

    @property
    def step_s(self) -> float:
        return float(self.row["step_s"])

    @property
    def machine(self) -> str:
        """The chip; software that is named with it has no shares of its own."""
        return self.row["hardware"].partition("@")[0]

    @property
    def staged(self) -> bool:
        """Whether the software that is named with the chip adds to the collectives of its weights (`sharded.py`)."""
        return "deepspeed_2021" in self.row["hardware"]

    @property
    def chips(self) -> int:
        total = 1
        for size in pairs(self.row["mesh"]).values():
            total *= int(size)
        return total


def pairs(text: str) -> dict[str, str]:
    return dict(part.split("=") for part in text.split(",")) if text else {}


def load(name: str = "runs.csv") -> list[Run]:
    with (HERE / name).open() as file:
        return [Run(row, ask(row)) for row in csv.DictReader(file)]


def beside(name: str) -> str:
    """A model or machine that is not packaged is a file beside the runs."""
    path = HERE / "beside" / f"{name}.yaml"
    return str(path) if path.exists() else name


def ask(row: dict[str, str]) -> StrategyAnswer:
    return ask_strategy(
        beside(row["model"]),
        row["strategy"],
        {axis: int(size) for axis, size in pairs(row["mesh"]).items()},
        float(row["batch_tokens"]),
        beside(row["hardware"]),
        seq=int(row["seq"]),
        dtype=row["dtype"],
        microbatches=int(row["microbatches"]) if row["microbatches"] else None,
        repeats=int(row["repeats"] or 1),
        pieces=int(row["pieces"] or 1),
        recompute=float(row["recompute"]),
        links=pairs(row["links"]) or None,
    )


def summary(name: str, runs: list[Run]) -> str:
    ratios = sorted(run.answer.estimate_seconds / run.step_s for run in runs)
    slack = [run.answer.seconds / run.step_s for run in runs]
    rho = "-"
    if len(runs) > 3:
        rank: Any = spearmanr([r.answer.estimate_seconds for r in runs], [r.step_s for r in runs])
        per_token: Any = spearmanr([r.answer.mfu for r in runs], [ideal(r) / r.step_s for r in runs])
        rho = f"{rank.statistic:.3f} | {per_token.statistic:.2f}"
    else:
        rho = "- | -"
    within = sum(1 / 1.25 <= ratio <= 1.25 for ratio in ratios) / len(ratios)
    return (
        f"| {name} | {len(runs)} | {max(slack):.2f} | {median(ratios):.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} "
        f"| {within:.0%} | {rho} |"
    )


def ideal(run: Run) -> float:
    """Seconds of the model's work at the peak rate: MFU is this over the step time."""
    return run.answer.mfu * run.answer.estimate_seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="one line a run before the table")
    given = parser.parse_args()
    runs = load()
    over = [run for run in runs if run.answer.seconds > run.step_s]
    if given.all:
        for run in runs:
            row, found = run.row, run.answer
            print(
                f"{row['source']:16s} {row['model']:20s} {row['hardware']:8s} {run.chips:5d} {row['strategy']:24s} "
                f"bound {found.seconds:8.3f} published {run.step_s:8.3f} estimate {found.estimate_seconds:8.3f} "
                f"upper {found.upper_seconds:8.3f} ratio {found.estimate_seconds / run.step_s:.2f}"
            )
    by_source: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_source[f"{run.row['source']}, {run.row['hardware']}"].append(run)
    print("| source, machine | runs | bound / published, largest | estimate / published, median | range "
          "| within 25% | rank correlation of step times | of MFU |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for name, mine in by_source.items():
        print(summary(name, mine))
    print(summary("all", runs))
    for run in over:
        print(f"LOWER BOUND EXCEEDED: {run.row} bound {run.answer.seconds:.4g} s by {run.answer.bound}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
