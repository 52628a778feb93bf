"""What software adds to collectives of sharded weights, from runs that say which software gathered them.

    python experiments/training_runs/sharded.py    # the rate and its runs, each source alone, software of later years

`sharded.csv` has runs by DeepSpeed of 2021 (ZeRO stage 3) beside the same runs by stage 2 or after its rewrite, and
runs by software of later years. The rate of profiles `@deepspeed_2021` is fitted to the former alone. None of them is
of the paper that compares ZeRO-3 with pipelines, which `fit.py` judges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from run import Run, beside, load
from scipy.optimize import least_squares

from autoshard.costmodels import load_profile

FITTED = ("DeepSpeed issue 1069", "DeepSpeed pull request 1453")
"""Sources that have runs with and without the software of 2021 on the same machines."""
_CENTER, _WIDTH, _ERROR = 0.5, 0.7, 0.1  # log odds of a source's share of the peak, their width, log error of a run
_ATTENTION = 0.45  # share of the peak that attention reaches, as fit.py has it before any run
_START = 1.5e10  # bytes/s


@dataclass(frozen=True)
class Staging:
    """A rate of the software in bytes/s, the share of its time that is hidden, and matmuls' share in each source."""

    rate: float
    hidden: float
    matmuls: dict[str, float]

    def step_s(self, run: Run) -> float:
        """The estimate of a run with this rate in place of the profile's."""
        cost = run.answer.cost
        work = cost.work.matmul_s / self.matmuls[run.row["source"]]
        work += cost.work.attention_s / _ATTENTION + cost.work.traffic_s
        exposed = sum(term.exposed_seconds for term in cost.terms)
        if (packaged := packaged_rate(run.row["hardware"])) is not None:
            bytes_ = sum(term.bytes * term.times for term in cost.terms)
            passing = exposed + bytes_ / self.rate - bytes_ / packaged
            return max(cost.lower_s, passing, work + (1 - self.hidden) * passing)
        return max(cost.lower_s, work + exposed)


@lru_cache
def packaged_rate(hardware: str) -> float | None:
    """The rate that runs on this machine are priced with; None where its software adds nothing."""
    rate = load_profile(beside(hardware)).staging_rate
    return None if rate is None else rate.value


def fit(runs: Sequence[Run], *, hides: bool = False) -> Staging:
    """The rate that agrees best with these runs, in log seconds; `hides`: with the share that hides behind work."""
    sources = sorted({run.row["source"] for run in runs})

    def of(x: np.ndarray) -> Staging:
        shares = 1 / (1 + np.exp(-(_CENTER + _WIDTH * x[2:])))
        hidden = float(1 / (1 + np.exp(-x[1]))) if hides else 0.0
        return Staging(_START * float(np.exp(x[0])), hidden, dict(zip(sources, map(float, shares), strict=True)))

    def residuals(x: np.ndarray) -> np.ndarray:
        found = of(x)
        logs = [np.log(found.step_s(run) / run.step_s) / _ERROR for run in runs]
        return np.array([*logs, *x[2:]])

    starts = (np.array([rate, share, *(0.0 for _ in sources)]) for rate in (0.0, -0.7) for share in (-2.0, 1.0))
    return of(min((least_squares(residuals, start) for start in starts), key=lambda found: found.cost).x)


def main() -> None:
    runs = load("sharded.csv")
    fitted = [run for run in runs if run.row["source"] in FITTED]
    found = fit(fitted)
    print("| run | devices | published | fitted | ratio |\n|---|---|---|---|---|")
    for run in fitted:
        name, step_s = f"{run.row['source']}, {run.row['model']}, {run.row['published']}", found.step_s(run)
        print(f"| {name} | {run.chips} | {run.step_s:.2f} s | {step_s:.2f} s | {step_s / run.step_s:.2f} |")
    print(f"\nrate {found.rate / 1e9:.1f} GB/s", ", ".join(f"{s} {m:.2f}" for s, m in found.matmuls.items()), sep="; ")
    for source in FITTED:
        alone = fit([run for run in fitted if run.row["source"] == source])
        print(f"{source} alone: {alone.rate / 1e9:.1f} GB/s")
    hiding = fit(fitted, hides=True)
    print(f"with a share that hides: {hiding.rate / 1e9:.1f} GB/s, {hiding.hidden:.0%} hidden\n")
    print("| software of later years | devices | published | estimate | ratio |\n|---|---|---|---|---|")
    for run in runs:
        if run.row["source"] not in FITTED:
            name, step_s = f"{run.row['source']}, {run.row['model']}, {run.machine}", run.answer.estimate_seconds
            print(f"| {name} | {run.chips} | {run.step_s:.2f} s | {step_s:.2f} s | {step_s / run.step_s:.2f} |")


if __name__ == "__main__":
    main()
