"""The shares of the peak that published training runs reach, and how well the closed forms foretell sources held out.

    python experiments/training_runs/fit.py    # shares by machine, errors of sources held out, order of strategies

Fitted are two shares for each machine: of matmuls and of attention. Everything else of the estimate (memory traffic,
exposed collectives, the pipeline's bubble) stays as it is. The shares of a machine differ from those of all machines
by a term that is kept small, so that a machine with few runs, or with none outside of a source, has the common ones.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from run import Run, load
from scipy.optimize import least_squares

Predict = Callable[[Run], float]

SOURCES = {"Megatron-LM SC21 ZeRO-3": "Megatron-LM SC21", "Megatron-LM SC21 PTD-P": "Megatron-LM SC21"}
"""Tables of one paper are one source."""
_CENTER = (0.85, -0.2)  # log odds of the shares of matmuls and attention before any run: 0.70 and 0.45
_COMMON, _OWN = 0.5, 1.0  # widths in log odds: of what all machines share, of what is one machine's own
_ERROR = 0.15  # of a run, in log seconds


@dataclass(frozen=True)
class Shares:
    """Shares of the peak, (matmuls, attention): of every machine that was fitted, and of any other."""

    by_machine: Mapping[str, tuple[float, float]]
    common: tuple[float, float]

    def step_s(self, run: Run) -> float:
        """The estimate of a run with these shares in place of the profile's."""
        cost = run.answer.cost
        matmuls, attention = self.by_machine.get(run.machine, self.common)
        work = cost.work.matmul_s / matmuls + cost.work.attention_s / attention + cost.work.traffic_s
        exposed = sum(term.exposed_seconds for term in cost.terms)
        return max(cost.lower_s, cost.in_turn_s, work / (1 - cost.bubble) + exposed)


def source(run: Run) -> str:
    """The publication a run is from; the benchmarks of one project are one source."""
    name = run.row["source"]
    return "MaxText" if name.startswith("MaxText") else SOURCES.get(name, name)


def fit(runs: Sequence[Run]) -> Shares:
    """The shares that agree best with these runs, in log seconds; large sources weigh less for each of their runs.

    Runs that software slowed down say more about it than about the machine: none of them is fitted.
    """
    runs = [run for run in runs if not run.staged]
    machines = sorted({run.machine for run in runs})
    index = np.array([machines.index(run.machine) for run in runs])
    sizes = Counter(source(run) for run in runs)
    weight = np.array([sizes[source(run)] ** -0.25 for run in runs]) / _ERROR
    costs = [run.answer.cost for run in runs]
    scale = np.array([1 / (1 - cost.bubble) for cost in costs])
    work = np.array([(c.work.matmul_s, c.work.attention_s, c.work.traffic_s) for c in costs]) * scale[:, None]
    exposed = np.array([sum(term.exposed_seconds for term in cost.terms) for cost in costs])
    lower = np.array([max(cost.lower_s, cost.in_turn_s) for cost in costs])
    steps = np.array([run.step_s for run in runs])

    def shares(x: np.ndarray) -> np.ndarray:
        odds = np.array(_CENTER) + _COMMON * x[:2] + _OWN * np.vstack([x[2:].reshape(-1, 2), np.zeros(2)])
        return 1 / (1 + np.exp(-odds))  # one row a machine, the last for any other

    def residuals(x: np.ndarray) -> np.ndarray:
        reached = shares(x)[index]
        found = np.maximum(lower, (work[:, :2] / reached).sum(axis=1) + work[:, 2] + exposed)
        return np.concatenate([weight * np.log(found / steps), x])

    found = shares(least_squares(residuals, np.zeros(2 + 2 * len(machines)), loss="soft_l1").x)
    own = {machine: (float(row[0]), float(row[1])) for machine, row in zip(machines, found, strict=False)}
    return Shares(own, (float(found[-1, 0]), float(found[-1, 1])))


def constant_share(ideal: Callable[[Run], float]) -> Callable[[Sequence[Run]], Predict]:
    """The rival: each machine reaches one share of its peak whatever it runs, the mean (in logs) of its other runs."""

    def fitted(runs: Sequence[Run]) -> Predict:
        logs: dict[str, list[float]] = defaultdict(list)
        for run in runs:
            logs[run.machine].append(np.log(run.step_s / ideal(run)))
        every = float(np.mean([value for values in logs.values() for value in values]))
        means = {machine: float(np.mean(values)) for machine, values in logs.items()}
        return lambda run: ideal(run) * float(np.exp(means.get(run.machine, every)))

    return fitted


def model_flops_s(run: Run) -> float:
    """Seconds of the model's FLOP at the peak rate: MFU is this over the step."""
    return run.answer.mfu * run.answer.estimate_seconds


def hardware_flops_s(run: Run) -> float:
    """The same with recomputation counted, as HFU does."""
    return model_flops_s(run) * (1 + float(run.row["recompute"]) / 3)


def held_out(runs: Sequence[Run], fitted: Callable[[Sequence[Run]], Predict]) -> dict[str, list[tuple[Run, float]]]:
    """Each source predicted by a fit to all others: its runs and their predicted seconds."""
    found: dict[str, list[tuple[Run, float]]] = {}
    for name in sorted({source(run) for run in runs}):
        predict = fitted([run for run in runs if source(run) != name])
        found[name] = [(run, predict(run)) for run in runs if source(run) == name]
    return found


def log_error(pairs: Iterable[tuple[Run, float]]) -> float:
    """Root mean square of log(predicted / published)."""
    return float(np.sqrt(np.mean([np.log(seconds / run.step_s) ** 2 for run, seconds in pairs])))


RIVALS: dict[str, Callable[[Sequence[Run]], Predict]] = {
    "closed forms": lambda runs: fit(runs).step_s,
    "constant MFU": constant_share(model_flops_s),
    "constant HFU": constant_share(hardware_flops_s),
}


def sharded_against_pipelines(predicted: Iterable[tuple[Run, float]]) -> list[tuple[Run, Run, float, float]]:
    """ZeRO-3 beside tensor and pipeline parallelism (Megatron-LM SC21, table 2), by model from few GPUs to many.

    Each row has the two runs and the ratio of their FLOP/s per GPU (ZeRO-3 over the other), published and predicted.
    """
    table: dict[str, dict[str, list[tuple[Run, float]]]] = defaultdict(lambda: defaultdict(list))
    for run, seconds in predicted:
        if run.row["source"] in SOURCES:
            table[run.row["model"]][run.row["source"]].append((run, seconds))
    rows = []
    for by_source in table.values():
        ours, theirs = (sorted(by_source[name], key=lambda pair: pair[0].chips) for name in SOURCES)
        for (sharded, a), (pipelined, b) in zip(ours, theirs, strict=True):
            work = model_flops_s(sharded) / model_flops_s(pipelined)
            rows.append((sharded, pipelined, work * pipelined.step_s / sharded.step_s, work * b / a))
    return rows


def main() -> None:
    runs = load()
    found = fit(runs)
    print("| machine | runs | matmuls | attention |\n|---|---|---|---|")
    for machine, (matmuls, attention) in found.by_machine.items():
        count = sum(run.machine == machine and not run.staged for run in runs)
        print(f"| {machine} | {count} | {matmuls:.2f} | {attention:.2f} |")
    print(f"| any other | 0 | {found.common[0]:.2f} | {found.common[1]:.2f} |\n")
    errors = {name: held_out(runs, fitted) for name, fitted in RIVALS.items()}
    print("| source held out | runs | " + " | ".join(errors) + " |\n|---|---|" + "---|" * len(errors))
    for name in errors["closed forms"]:
        cells = " | ".join(f"{log_error(by[name]):.3f}" for by in errors.values())
        print(f"| {name} | {len(errors['closed forms'][name])} | {cells} |")
    whole = {name: log_error(pair for pairs in by.values() for pair in pairs) for name, by in errors.items()}
    print(f"| all | {len(runs)} | " + " | ".join(f"{error:.3f}" for error in whole.values()) + " |\n")
    print("| model | ZeRO-3 on | TP and PP on | FLOP/s, ZeRO-3 over the other: published | predicted, held out |")
    print("|---|---|---|---|---|")
    pairs = [pair for by in errors["closed forms"].values() for pair in by]
    for sharded, pipelined, published, predicted in sharded_against_pipelines(pairs):
        print(f"| {sharded.row['model']} | {sharded.chips} | {pipelined.chips} | {published:.2f} | {predicted:.2f} |")


if __name__ == "__main__":
    main()
