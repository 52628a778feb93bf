"""How much does a plan communicate, beside XLA's own partitioner with the same shardings of inputs and outputs?

    python experiments/communication/run.py [--models mlp,...] [--meshes 8,2x4,2x2x2] [--hardware cpu_sim]

For every model of the library (tiny dimensions) and mesh of eight simulated devices: the train step is planned, lowered
with its collectives written out, and compiled; then the model's own step is jitted with the plan's `in_shardings`,
`out_shardings` and donations and compiled, so that XLA's partitioner places every collective. Collectives of both
compiled programs are read from the HLO text and counted in bytes that one device sends in a step (ring algorithms, see
`autoshard/verify/runs/traffic.py`). Writes communication.csv, prints the table; exit code 1 if a plan sends more
anywhere.
"""

import argparse
import os
import sys
from collections import Counter
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import pandas as pd

import autoshard
from autoshard.models import build
from autoshard.verify.runs.hlo import hlo_collectives
from autoshard.verify.runs.traffic import moved_bytes, of_found, of_planned

sys.path.append(str(Path(__file__).resolve().parents[1]))
from choices import names_of

MODELS = {
    "mlp": ("mlp", {"batch": 64, "inputs": 128, "hidden": 256, "outputs": 64}),
    "transformer": ("transformer", {}),
    "transformer_unrolled": ("transformer", {"scan": False}),
    "moe": ("moe", {}),
    "resnet": ("resnet", {}),
}
MESHES = {"8": {"x": 8}, "2x4": {"x": 2, "y": 4}, "2x2x2": {"x": 2, "y": 2, "z": 2}}
TIME_LIMIT_S = 300
"""For a proof on a busy machine as well."""
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")


def case(name: str, mesh_name: str, hardware: str) -> dict[str, object]:
    kind, options = MODELS[name]
    model = build(kind, **options)
    plan = autoshard.plan(
        model.step, *model.specs, mesh=MESHES[mesh_name], hardware=hardware, argnames=model.argnames,
        donate_argnums=model.donate_argnums, time_limit=TIME_LIMIT_S,
    )  # fmt: skip
    mesh = plan.schedule.mesh
    ours = traffic(plan.jit(), model.specs, mesh)
    with_xla = jax.jit(
        model.step, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings,
        donate_argnums=model.donate_argnums,
    )  # fmt: skip
    xla = traffic(with_xla, model.specs, mesh)
    row: dict[str, object] = {
        "model": name, "mesh": mesh_name, "hardware": hardware,
        "planned_bytes": round(moved_bytes(of_planned(plan.lowered.planned, mesh))),
        "ours_bytes": round(moved_bytes(ours)), "xla_bytes": round(moved_bytes(xla)),
        "xla_bytes_if_scattered": round(moved_bytes(xla) - by_kind(xla)["all_reduce"] / 2),
        "ours_count": ours.total(), "xla_count": xla.total(),
    }  # fmt: skip
    row["ours_over_xla"] = round(row["ours_bytes"] / row["xla_bytes"], 3) if row["xla_bytes"] else 1.0
    row["never_more"] = row["ours_bytes"] <= row["xla_bytes"]
    for kind in KINDS:
        row[f"ours_{kind}"], row[f"xla_{kind}"] = round(by_kind(ours)[kind]), round(by_kind(xla)[kind])
    row["why"] = why(by_kind(ours), by_kind(xla))
    return row


def traffic(jitted, specs, mesh):
    return of_found(hlo_collectives(jitted.lower(*specs).compile().as_text()), mesh)


def by_kind(found) -> Counter:
    total: Counter = Counter()
    for t, times in found.items():
        total[t.kind] += t.moved * times
    return total


def why(ours: Counter, xla: Counter) -> str:
    """Where the difference lies, largest part first; an all-reduce in place of a reduce-scatter sends twice as much."""
    reasons: dict[str, float] = {}
    scattered = min(ours["reduce_scatter"], xla["all_reduce"] / 2)
    extra = {kind: xla[kind] - ours[kind] for kind in KINDS}
    if scattered > 0:
        reasons["sums go where they are wanted (reduce-scatter) instead of everywhere (all-reduce)"] = scattered
        extra["reduce_scatter"] += scattered
        extra["all_reduce"] -= 2 * scattered
    names = {
        "all_reduce": "other all-reduces", "all_gather": "gathers", "all_to_all": "all-to-alls",
        "permute": "permutes", "reduce_scatter": "reduce-scatters",
    }  # fmt: skip
    for kind, size in extra.items():
        if abs(size) >= 1:
            reasons[f"XLA has {'more' if size > 0 else 'fewer'} {names[kind]}"] = size
    ordered = sorted(reasons.items(), key=lambda item: -abs(item[1]))
    return "; ".join(f"{text}: {size:+,.0f}" for text, size in ordered)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=names_of(MODELS, "model"), default=",".join(MODELS))
    parser.add_argument("--meshes", type=names_of(MESHES, "mesh"), default=",".join(MESHES))
    parser.add_argument("--hardware", default="cpu_sim")
    parser.add_argument("--output", default=str(Path(__file__).parent / "communication.csv"))
    given = parser.parse_args()
    rows = []
    for name in given.models:
        for mesh in given.meshes:
            rows.append(case(name, mesh, given.hardware))
            print({k: v for k, v in rows[-1].items() if k != "why"}, rows[-1]["why"], sep="\n  ", flush=True)
            pd.DataFrame(rows).to_csv(given.output, index=False)  # what is known so far
    table = pd.DataFrame(rows)
    shown = [
        "model",
        "mesh",
        "ours_bytes",
        "xla_bytes",
        "xla_bytes_if_scattered",
        "ours_over_xla",
        "ours_count",
        "xla_count",
    ]
    print(table[shown].to_string(index=False))
    return 0 if table["never_more"].all() else 1


if __name__ == "__main__":
    sys.exit(main())
