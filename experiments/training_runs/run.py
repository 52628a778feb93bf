"""Step times of published training runs beside the closed-form bounds and estimate.

    python experiments/training_runs/run.py            # table by source; exit code 1 where a lower bound is exceeded
    python experiments/training_runs/run.py --all      # one line a run
    python experiments/training_runs/run.py --fit      # the share of the peak that each machine's runs reach

`runs.csv` has what was published and how each step time follows from it; README.md names the sources.
"""

import csv
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import numpy as np  # noqa: E402
from scipy.optimize import nnls  # noqa: E402
from scipy.stats import spearmanr  # noqa: E402

from autoshard.costmodels import Machine, Profile, load_profile, place_mesh  # noqa: E402
from autoshard.costmodels.models import load_model  # noqa: E402
from autoshard.costmodels.profile import Quantity  # noqa: E402
from autoshard.costmodels.strategies import _hidden, _likely_work_s  # noqa: E402
from autoshard.costmodels.strategy_questions import StrategyAnswer, ask_strategy  # noqa: E402

ONE = Quantity(value=1.0, unit="fraction", source="assumption")


@dataclass(frozen=True)
class Run:
    """A published run: what was asked of the cost model, and the published seconds of a step."""

    row: dict[str, str]
    answer: StrategyAnswer

    @property
    def step_s(self) -> float:
        return float(self.row["step_s"])

    @property
    def chips(self) -> int:
        total = 1
        for size in pairs(self.row["mesh"]).values():
            total *= int(size)
        return total


def pairs(text: str) -> dict[str, str]:
    return dict(part.split("=") for part in text.split(",")) if text else {}


def load() -> list[Run]:
    with (HERE / "runs.csv").open() as file:
        return [Run(row, ask(row)) for row in csv.DictReader(file)]


def ask(row: dict[str, str]) -> StrategyAnswer:
    return ask_strategy(
        row["model"],
        row["strategy"],
        {axis: int(size) for axis, size in pairs(row["mesh"]).items()},
        float(row["batch_tokens"]),
        row["hardware"],
        seq=int(row["seq"]),
        dtype=row["dtype"],
        microbatches=int(row["microbatches"]) if row["microbatches"] else None,
        repeats=int(row["repeats"] or 1),
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


def fit(runs: list[Run]) -> None:
    """Shares of the peak that matmuls and attention reach, least squares of relative errors over every other run of a
    machine; the other half judges. What is exposed of the collectives and the memory traffic stays as modelled."""
    by_machine: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.row["dtype"] == "bfloat16":
            by_machine[run.row["hardware"]].append(run)
    for hardware, mine in sorted(by_machine.items()):
        rows = np.array([terms(run) for run in mine])
        steps = np.array([run.step_s for run in mine])
        even = np.arange(len(mine)) % 2 == 0
        rest = np.maximum(steps - rows[:, 2], 0.05 * steps)
        found, _ = nnls(rows[even, :2] / steps[even, None], rest[even] / steps[even])
        error = (rows[:, :2] @ found + rows[:, 2]) / steps - 1
        shares = [1 / max(x, 1e-9) for x in found]
        print(
            f"{hardware}: {len(mine)} runs, matmuls {shares[0]:.2f} of the peak, attention {shares[1]:.2f}; rms error "
            f"{np.sqrt(np.mean(error[even] ** 2)):.0%} fitted, {np.sqrt(np.mean(error[~even] ** 2)):.0%} held out"
        )


def terms(run: Run) -> tuple[float, float, float]:
    """Seconds at the peak of matmuls and of attention, and everything else of the estimate."""
    profile, card, cost = load_profile(run.row["hardware"]), load_model(run.row["model"]), run.answer.cost
    per_token = card.train_flops_per_token(int(run.row["seq"]))
    peak_s = cost.compute_s / (1 - cost.bubble)
    matmuls = peak_s * 6 * card.matmul_params / per_token
    traffic = _likely_work_s(
        place_mesh(profile.model_copy(update={"matmul_efficiency": ONE, "attention_efficiency": ONE}), {"x": 1}),
        card, cost.flops_per_device, int(run.row["seq"]), profile.matmul_flops_per_s(run.row["dtype"]),
        float(run.row["recompute"]),
    ) / (1 - cost.bubble) - peak_s  # fmt: skip
    exposed = sum(t.upper_seconds * (1 - _hidden(load_machine(profile), t)) for t in cost.terms)
    return matmuls, peak_s - matmuls, traffic + exposed


def load_machine(profile: Profile) -> Machine:
    return place_mesh(profile, {"x": 1})


def main() -> int:
    runs = load()
    if "--fit" in sys.argv:
        fit(runs)
        return 0
    over = [run for run in runs if run.answer.seconds > run.step_s]
    if "--all" in sys.argv:
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
