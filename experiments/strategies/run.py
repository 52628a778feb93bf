"""All strategies on all models of the library, on three meshes and several machines, under three sets of statements.

    python experiments/strategies/run.py [--models a,b] [--profiles a,b] [--meshes 8,2x4] [--minutes 30] [--output DIR]

Every problem is one network that all strategies solve (`autoshard.questions.compare`). Rows are appended to rows.csv of
the output folder (results/) as they come, problems that are there already are skipped; tables and the plot are made of
all rows.

Statements: `none`; `batch`, the batch on the first axis; `inputs`, all inputs as fsdp+tensor has them (fsdp on one
axis), left open for more, with the batch first in priority, then what cuts matmuls, then what cuts storage.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from autoshard import Pin
from autoshard.api.verbs import ask
from autoshard.errors import AutoshardError
from autoshard.frontends.jax.function import TracedFunction, trace
from autoshard.models import build
from autoshard.planning import build_model
from autoshard.program.program import Program
from autoshard.questions.compare import compare_strategies
from autoshard.search_options import SearchOptions
from autoshard.sharding.mesh import Mesh
from autoshard.strategies.choice import NAMES
from autoshard.strategies.named import named_strategy, statements
from autoshard.strategies.names import default_baselines

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import machines, names_of

HERE = Path(__file__).parent

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {"batch": 512}),
    "transformer": (
        "transformer",
        {"layers": 8, "d_model": 2048, "d_ff": 8192, "heads": 16, "kv_heads": 8, "vocab": 32768, "batch": 16,
         "seq": 2048, "scan": True, "remat": True, "compute_dtype": "bfloat16"},
    ),
    "transformer_unrolled": (
        "transformer",
        {"layers": 4, "d_model": 2048, "d_ff": 8192, "heads": 16, "kv_heads": 8, "vocab": 32768, "batch": 16,
         "seq": 2048, "scan": False, "remat": False, "compute_dtype": "bfloat16"},
    ),
    "moe": (
        "moe",
        {"layers": 4, "d_model": 1024, "d_ff": 4096, "heads": 16, "kv_heads": 8, "experts": 8, "vocab": 32768,
         "batch": 16, "seq": 1024, "scan": True, "remat": True, "compute_dtype": "bfloat16"},
    ),
    "resnet": ("resnet", {"batch": 256}),
}  # fmt: skip
MESHES = {"8": {"data": 8}, "2x4": {"data": 2, "model": 4}, "2x2x2": {"data": 2, "fsdp": 2, "model": 2}}
PROFILES = ("tpu_v5e", "h100", "tpu_v5p")
STATED = ("none", "batch", "inputs")
RULES = ("user-priority:first-factor", "user-priority:biggest-tensor", "user-priority:batch-before-contracting",
         "user-priority:cost")  # fmt: skip
LIMIT_S = 240.0
"""Seconds of wall clock for all strategies on one problem."""


def pins_of(program: Program, mesh: dict[str, int], roles: Any, stated: str) -> list[Pin]:
    """The statements about a program as pins, open for more."""
    if stated == "none":
        return []
    logical = Mesh.from_dict(mesh)
    name = "data" if stated == "batch" else ("fsdp" if len(mesh) == 1 else "fsdp+tensor")
    said = statements(named_strategy(name, logical), program, logical, roles)
    names = dict(zip(program.body.args, program.input_names, strict=False))
    pins = []
    for value, sharding in said.spread.items():
        if any(d.axes for d in sharding.dims):
            dims = tuple(replace(d, is_open=True) for d in sharding.dims)
            pins.append(Pin(names[value], replace(sharding, dims=dims), source=f"{name}: {names[value]}"))
    return pins


def problem_rows(model: str, traced: TracedFunction, roles: Any, mesh: str, profile: str, stated: str) -> pd.DataFrame:
    sizes = MESHES[mesh]
    pins = pins_of(traced.program, sizes, roles, stated)
    began = time.monotonic()
    asked = ask(traced.program, mesh=sizes, hardware=profile, constraints=pins, memory_limit="none")
    network = build_model(asked.problem)
    built = time.monotonic() - began
    names = [*NAMES, *(RULES if pins else ())]
    found = compare_strategies(
        network, names, baselines=default_baselines(Mesh.from_dict(sizes)), roles=roles,
        options=SearchOptions(effort=0.5).within(LIMIT_S),
    )  # fmt: skip
    frame = found.to_pandas()
    frame.insert(0, "model", model)
    frame.insert(1, "mesh", mesh)
    frame.insert(2, "profile", profile)
    frame.insert(3, "stated", stated)
    frame["bound_s"], frame["build_s"] = found.bound_s, round(built, 2)
    frame["reason"] = frame["reason"].str.split("\n").str[0].str.slice(0, 160)
    return frame


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=names_of(MODELS, "model"), default=",".join(MODELS))
    parser.add_argument("--profiles", type=machines, default=",".join(PROFILES))
    parser.add_argument("--meshes", type=names_of(MESHES, "mesh"), default=",".join(MESHES))
    parser.add_argument("--stated", type=names_of(STATED, "set of statements"), default=",".join(STATED))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop beginning new problems after this")
    parser.add_argument("--tables", action="store_true", help="only make the tables and the plot again")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder of rows, tables and the plot")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    kept = given.output / "rows.csv"
    began = time.monotonic()
    keys = ["model", "mesh", "profile", "stated"]
    done = set(map(tuple, pd.read_csv(kept, dtype=str)[keys].values)) if kept.exists() else set()
    traced: dict[str, Any] = {}
    wanted = [
        (model, mesh, profile, stated)
        for profile in given.profiles
        for mesh in given.meshes
        for stated in given.stated
        for model in given.models
    ]
    for key in [] if given.tables else wanted:
        if key in done or time.monotonic() - began > 60 * given.minutes:
            continue
        model = key[0]
        if model not in traced:
            kind, options = MODELS[model]
            program = build(kind, **options)
            traced[model] = (
                trace(
                    program.step, *program.specs, donate_argnums=program.donate_argnums, argnames=program.argnames,
                    name=model,
                ),
                program.logical_axes,
            )  # fmt: skip
        try:
            rows = problem_rows(model, *traced[model], *key[1:])
        except AutoshardError as error:
            print(f"{' '.join(key)}: {error}", file=sys.stderr)
            continue
        rows.to_csv(kept, mode="a", header=not kept.exists(), index=False)
        print(f"{' '.join(key)}: {time.monotonic() - began:.0f} s", flush=True)
    if kept.exists():
        report(pd.read_csv(kept, dtype={"mesh": str}), given.output)
    return 0


def report(rows: pd.DataFrame, folder: Path) -> None:
    """Tables by strategy, and a plot of regrets, beside the rows."""
    rows = rows.copy()
    problem = ["model", "mesh", "profile", "stated"]
    best = rows.groupby(problem)["peak_bytes"].transform("min")
    rows["memory_x"] = rows["peak_bytes"] / best
    problems = rows.groupby(problem).ngroups
    ran = rows[rows["objective_s"].notna()]
    table = ran.groupby(["strategy", "stated"])["regret"].agg(["count", "median", "mean", "max"]).round(4)
    overall = ran.groupby("strategy").agg(
        problems=("regret", "count"), median_regret=("regret", "median"), worst_regret=("regret", "max"),
        within_1_percent=("regret", lambda r: (r <= 0.01).mean()), median_memory_x=("memory_x", "median"),
        median_seconds=("seconds", "median"),
    ).round(3).sort_values("median_regret")  # fmt: skip
    by_model = ran.pivot_table(index="strategy", columns=["model"], values="regret", aggfunc="median").round(3)
    text = [f"{problems} problems, {len(rows)} rows", "", "## Overall", "", markdown(overall.reset_index()), "",
            "## Median regret by model", "", markdown(by_model.reset_index()), "", "## Regret by statements", "",
            markdown(table.reset_index()), ""]  # fmt: skip
    (folder / "tables.md").write_text("\n".join(text))
    print(overall.to_string())
    plot(ran, folder / "regret.png")


def markdown(frame: pd.DataFrame) -> str:
    """A table in Markdown; cells without a number are empty."""
    rows = [list(map(str, frame.columns)), ["---"] * len(frame.columns)]
    rows += [["" if pd.isna(x) else f"{x:g}" if isinstance(x, float) else str(x) for x in row] for row in frame.values]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def plot(ran: pd.DataFrame, target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    order = ran.groupby("strategy")["regret"].median().sort_values().index.tolist()
    figure, axes = pyplot.subplots(figsize=(9, 0.35 * len(order) + 1.5))
    for place, name in enumerate(order):
        values = ran.loc[ran["strategy"] == name, "regret"].clip(lower=1e-6)
        axes.scatter(values, [place] * len(values), s=12, alpha=0.5, color="tab:blue")
    axes.set_yticks(range(len(order)), order)
    axes.set_xscale("log")
    axes.set_xlabel("regret against the proven bound (1e-6 stands for 0)")
    axes.invert_yaxis()
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    raise SystemExit(main())
