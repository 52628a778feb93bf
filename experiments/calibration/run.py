"""Does the calibrated cost model rank plans as they really run? Eight simulated CPU devices, one program at a time.

    python experiments/calibration/run.py calibrate   # -> cpu_sim_8.yaml, minutes
    python experiments/calibration/run.py measure     # -> plans.csv, tens of minutes
    python experiments/calibration/run.py plot        # -> plans.png and the rank correlation

Plans that differ are made by forcing named strategies on several meshes of the same eight devices, and the planner's
own choice for each mesh. Every plan is visited in turn, round after round, and the least time counts: the machine may
be shared.
"""

import argparse
import csv
import gc
import json
import os
import sys
import time
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

# glibc hands out buffers of 32 MiB and more as fresh pages, and faulting them in takes longer than any collective.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**34), "MALLOC_TRIM_THRESHOLD_": str(2**36), "MALLOC_TOP_PAD_": str(2**28)}
if any(os.environ.get(key) != value for key, value in MALLOC.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | MALLOC)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
HERE = Path(__file__).resolve().parent
PROFILE, TABLE, PLOT = HERE / "cpu_sim_8.yaml", HERE / "plans.csv", HERE / "plans.png"
MESHES = ({"x": 8}, {"x": 2, "y": 4}, {"x": 4, "y": 2})
PROGRAMS: dict[str, dict[str, Any]] = {
    "mlp": {"inputs": 512, "hidden": 1536, "outputs": 256, "layers": 4, "batch": 256, "bias": False},
    "transformer": {
        "layers": 2, "d_model": 256, "d_ff": 1024, "heads": 8, "kv_heads": 8, "vocab": 1024, "batch": 16, "seq": 128,
        "scan": True,
    },
}  # fmt: skip
ALONE = {
    "mlp": ("data", "zero1", "fsdp", "tensor"),
    "transformer": ("data", "zero1", "fsdp", "tensor", "context", "sequence"),
}
MIXED = {
    "mlp": ("fsdp+tensor", "data+tensor", "zero1+tensor"),
    "transformer": (
        "fsdp+tensor", "data+tensor", "fsdp+context", "data+context", "fsdp+sequence", "data+sequence",
        "context+tensor",
    ),
}  # fmt: skip
# Strategies that leave devices idle on an axis: bad plans on purpose, so that costs differ.
IDLE = (
    {"name": "rows on y only", "rules": {"batch": "y"}},
    {"name": "rows on x, mlp on x", "rules": {"batch": "x", "mlp": "x"}},
    {"name": "mlp on y only", "rules": {"mlp": "y", "heads": "y", "kv_heads": "y", "vocab": "y"}},
    {"name": "mlp on y, embed on x", "rules": {"mlp": "y", "embed": "x"}},
)
ROUNDS = int(os.environ.get("ROUNDS", "8"))
STEPS_PER_VISIT = 3


@dataclass
class Case:
    program: str
    mesh: dict[str, int]
    strategy: str
    predicted_s: float
    plan: Any
    measured_s: float = float("inf")
    run: Any = None


def calibrate() -> None:
    from autoshard.calibrate import calibrate as measure
    from autoshard.costmodels.calibration import profile_yaml

    found = measure(
        mesh={"x": 2, "y": 4}, name="cpu_sim_8", date=date.today().isoformat(), progress=lambda t: print(t, flush=True)
    )
    PROFILE.write_text(profile_yaml(found.profile))
    (HERE / "calibration.json").write_text(json.dumps(found.to_dict(), indent=1) + "\n")
    for name, fit in (*found.work.items(), *found.levels.items()):
        print(
            f"{name}: {fit.rate:.4g}/s, latency {fit.latency_s:.3g} s, "
            f"rms error {fit.rms_relative_error:.0%} of {fit.points}"
        )


def make_cases(name: str, model: Any) -> list[Case]:
    """The program under every strategy on every mesh, equal plans once."""
    from autoshard.api import verbs as api
    from autoshard.api.plans import Plan
    from autoshard.costs.memory import simulate
    from autoshard.costs.price import price
    from autoshard.frontends.jax.function import trace
    from autoshard.planning import Problem, build_model
    from autoshard.search.baselines import price_baselines

    cases: dict[float, Case] = {}
    for sizes in MESHES:
        traced = trace(model.step, *model.specs, donate_argnums=(0,), argnames=model.argnames, name=name)
        mesh, machine = api.placed(sizes, str(PROFILE))
        built = build_model(Problem.make(traced.program, mesh, machine))
        strategies = ALONE[name] + ((*MIXED[name], *idle_rules(name)) if len(sizes) > 1 else ())
        for priced in price_baselines(built, strategies, model.logical_axes):
            if priced.assignment is None:
                print(f"{name} {sizes} {priced.cost.name}: {priced.cost.reason}", flush=True)
                continue
            schedule = built.schedule(priced.assignment)
            cost = price(traced.program, schedule, built.fusion, built.prices)
            memory = simulate(traced.program, schedule, built.liveness)
            plan = Plan(
                program=traced.program,
                schedule=schedule,
                machine=machine,
                cost=cost,
                memory=memory,
                status="feasible",
                objective_s=cost.step_s,
                bound_s=0.0,
                gap=1.0,
                traced=traced,
            )
            cases.setdefault(round(cost.step_s, 9), Case(name, sizes, priced.cost.name, cost.step_s, plan))
        plan = api.plan_traced(traced, mesh=sizes, hardware=str(PROFILE))
        cases.setdefault(round(plan.cost.step_s, 9), Case(name, sizes, "planned", plan.cost.step_s, plan))
        print(f"{name} {sizes}: {len(cases)} different plans", flush=True)
    return list(cases.values())


def idle_rules(name: str) -> list[dict[str, Any]]:
    """`IDLE` with the logical axes that the program has."""
    known = {"mlp": {"batch", "mlp", "embed"}}.get(name)
    return [
        {"name": one["name"], "rules": {k: v for k, v in one["rules"].items() if known is None or k in known}}
        for one in IDLE
    ]


def visit(case: Case, state: Any, batch: Any) -> None:
    """A few steps from the initial state; the first one warms up."""
    import jax

    held = jax.device_put(state, case.plan.in_shardings[0])
    placed = jax.device_put(batch, case.plan.in_shardings[1])
    jax.block_until_ready((held, placed))
    for _ in range(STEPS_PER_VISIT):
        began = time.perf_counter()
        held, metrics = case.run(held, placed)
        jax.block_until_ready((held, metrics))
        case.measured_s = min(case.measured_s, time.perf_counter() - began)


def measure() -> None:
    from autoshard.models import build

    done: list[Case] = []
    for name, options in PROGRAMS.items():
        model = build(name, **options)
        cases = make_cases(name, model)
        import jax
        import numpy as np

        state = jax.tree.map(np.asarray, model.init(0))
        batch = jax.tree.map(np.asarray, next(model.batches(0)))
        for index, case in enumerate(cases):
            began = time.perf_counter()
            case.run = case.plan.jit()
            visit(case, state, batch)
            case.measured_s = float("inf")  # that was the compiler
            print(f"compiled {index + 1}/{len(cases)} in {time.perf_counter() - began:.1f} s", flush=True)
        for number in range(ROUNDS):
            for case in cases if number % 2 == 0 else reversed(cases):
                visit(case, state, batch)
            print(f"{name}: round {number + 1}/{ROUNDS}, rank correlation {rank_correlation(cases):.3f}", flush=True)
        done += [replace(case, plan=None, run=None) for case in cases]
        write(done, {id(c): parts for c, parts in zip(done[-len(cases) :], map(cost_parts, cases), strict=True)})
        del cases
        gc.collect()


ROWS: list[dict[str, Any]] = []


def cost_parts(case: Case) -> dict[str, float]:
    cost = case.plan.cost
    return {"compute_s": cost.compute_s, "communication_s": cost.communication_s, "local_s": cost.local_s}


def write(cases: list[Case], parts: dict[int, dict[str, float]]) -> None:
    for case in cases:
        if id(case) in parts:
            mesh = "x".join(f"{a}={n}" for a, n in case.mesh.items())
            ROWS.append(
                {"program": case.program, "mesh": mesh, "strategy": case.strategy, "predicted_s": case.predicted_s}
                | {"measured_s": case.measured_s}
                | parts[id(case)]
            )
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0].keys())
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in ROWS)


def rank_correlation(cases: list[Case]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr([c.predicted_s for c in cases], [c.measured_s for c in cases]).statistic)


def plot() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from scipy.stats import spearmanr

    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    figure, axes = plt.subplots(figsize=(7, 6))

    def figures(chosen: list[dict[str, str]]) -> tuple[list[float], list[float]]:
        return [float(r["predicted_s"]) * 1e3 for r in chosen], [float(r["measured_s"]) * 1e3 for r in chosen]

    for program, marker in zip(PROGRAMS, "os", strict=True):
        mine = [r for r in rows if r["program"] == program]
        predicted, measured = figures(mine)
        rho = spearmanr(predicted, measured).statistic
        print(f"{program}: {len(mine)} plans, rank correlation {rho:.3f}")
        axes.scatter(
            predicted, measured, marker=marker, label=f"{program}: {len(mine)} plans, rank correlation {rho:.2f}"
        )
        for x, y, row in zip(predicted, measured, mine, strict=True):
            axes.annotate(row["strategy"], (x, y), fontsize=5, xytext=(2, 2), textcoords="offset points")
    predicted, measured = figures(rows)
    rho = spearmanr(predicted, measured).statistic
    print(f"all: {len(rows)} plans, rank correlation {rho:.3f}")
    ends = (min(predicted + measured), max(predicted + measured))
    axes.plot(ends, ends, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="predicted step, ms", ylabel="measured step, ms (least of all rounds)")
    axes.set_title(
        f"Calibrated cpu_sim, 8 simulated devices: {len(rows)} plans, rank correlation {rho:.2f}", fontsize=9
    )
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(PLOT, dpi=150)


if __name__ == "__main__":
    verbs = {"calibrate": calibrate, "measure": measure, "plot": plot}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=verbs)
    verbs[parser.parse_args().what]()
