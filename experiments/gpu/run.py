"""Seconds that a GPU agrees with: a calibration on one, and programs held out from it beside what autoshard says.

    python experiments/gpu/run.py measure     # on a machine with a GPU: calibrate, run what was held out; minutes
    python experiments/gpu/run.py refit       # anywhere: the numbers again from the seconds that were measured
    python experiments/gpu/run.py report      # anywhere: prices, and simulated steps where the compiler is installed

`measure` writes the profile, the calibration and the seconds of the held-out programs to results/. `refit` is for
changes of what is counted of a program: it works that out again and fits to the kept seconds. `report` prices each
program as a plan on one device with that profile, compiles it for the described GPU (``pip install
'autoshard[gpu]'``), and prints both beside what was measured.
"""

import argparse
import json
import sys
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
RESULTS = HERE / "results"

_BF16 = {"compute_dtype": "bfloat16"}
STEPS: dict[str, dict[str, Any]] = {
    "gpt2 width, 6 layers": {
        "layers": 6, "d_model": 768, "d_ff": 3072, "heads": 12, "kv_heads": 12, "vocab": 50304, "batch": 8, "seq": 1024,
        "norm": "layer", "bias": True, "gated_mlp": False, "positions": "learned", "tied_embeddings": True,
        "scan": False, **_BF16,
    },
    "1B llama, 4 layers": {
        "layers": 4, "d_model": 2048, "d_ff": 5632, "heads": 32, "kv_heads": 4, "vocab": 32000, "batch": 2, "seq": 2048,
        "scan": True, "remat": True, **_BF16,
    },
    "7B llama, 1 layer": {
        "layers": 1, "d_model": 4096, "d_ff": 11008, "heads": 32, "kv_heads": 32, "vocab": 32000, "batch": 4,
        "seq": 1024, "scan": False, **_BF16,
    },
    "wide MLP, heads of 256": {
        "layers": 2, "d_model": 2048, "d_ff": 16384, "heads": 8, "kv_heads": 1, "head_dim": 256, "vocab": 65536,
        "batch": 4, "seq": 1024, "scan": True, **_BF16,
    },
    "short sequences, float32": {
        "layers": 8, "d_model": 512, "d_ff": 2048, "heads": 8, "kv_heads": 8, "vocab": 16384, "batch": 64, "seq": 256,
        "scan": True,
    },
    "one sequence of 8192": {
        "layers": 2, "d_model": 1024, "d_ff": 4096, "heads": 8, "kv_heads": 8, "vocab": 32000, "batch": 1, "seq": 8192,
        "scan": True, "remat": True, **_BF16,
    },
    "1.5B qwen, 3 layers": {
        "layers": 3, "d_model": 1536, "d_ff": 8960, "heads": 12, "kv_heads": 2, "vocab": 32768, "batch": 16, "seq": 512,
        "qkv_bias": True, "scan": False, **_BF16,
    },
}  # fmt: skip
"""Train steps of transformers, none of them among the programs of the calibration."""

LATER_STEPS: dict[str, dict[str, Any]] = {
    "gpt2 medium, 4 layers": {
        "layers": 4, "d_model": 1024, "d_ff": 4096, "heads": 16, "kv_heads": 16, "vocab": 50304, "batch": 8,
        "seq": 1024, "norm": "layer", "bias": True, "gated_mlp": False, "positions": "learned",
        "tied_embeddings": True, "scan": False, **_BF16,
    },
    "8B llama, 1 layer": {
        "layers": 1, "d_model": 4096, "d_ff": 14336, "heads": 32, "kv_heads": 8, "vocab": 32000, "batch": 2,
        "seq": 2048, "scan": False, **_BF16,
    },
    "3B llama, 2 layers": {
        "layers": 2, "d_model": 3072, "d_ff": 8192, "heads": 24, "kv_heads": 8, "vocab": 32768, "batch": 4,
        "seq": 1024, "scan": True, "remat": True, **_BF16,
    },
    "two sequences of 4096": {
        "layers": 2, "d_model": 2048, "d_ff": 5504, "heads": 16, "kv_heads": 16, "vocab": 32000, "batch": 2,
        "seq": 4096, "scan": True, "remat": True, **_BF16,
    },
    "gpt2 width, float32": {
        "layers": 6, "d_model": 768, "d_ff": 3072, "heads": 12, "kv_heads": 12, "vocab": 32768, "batch": 16,
        "seq": 512, "scan": True,
    },
    "0.5B qwen, 4 layers": {
        "layers": 4, "d_model": 896, "d_ff": 4864, "heads": 14, "kv_heads": 2, "vocab": 32768, "batch": 8,
        "seq": 1024, "qkv_bias": True, "scan": True, **_BF16,
    },
    "sequences of 384": {
        "layers": 4, "d_model": 1024, "d_ff": 4096, "heads": 16, "kv_heads": 16, "vocab": 32768, "batch": 32,
        "seq": 384, "gated_mlp": False, "scan": False, **_BF16,
    },
}  # fmt: skip
"""More of them, written down when the terms of the fit had been settled on all the others."""

SHAPES = (
    (1536, 1536, 6144), (3072, 2048, 2048), (4096, 2048, 5632), (4096, 5120, 5120), (8192, 1536, 8960),
    (2048, 4096, 11008), (16384, 2048, 2048), (1024, 8192, 4096), (8192, 2048, 32000), (3000, 3000, 3000),
    (4096, 14336, 4096), (6144, 6144, 6144),
)  # fmt: skip
"""Matmuls (rows, contraction, columns), none of them among those of the calibration."""
LATER_SHAPES = (
    (2048, 3072, 3072), (4096, 2048, 8192), (8192, 3072, 8192), (4096, 4096, 11008), (16384, 1024, 4096),
    (2048, 14336, 4096), (4096, 8192, 8192), (1024, 4096, 4096), (12288, 4096, 4096), (2560, 2560, 10240),
)  # fmt: skip


def held_out() -> dict[str, Callable[[], Any]]:
    """Name -> program."""
    import jax.numpy as jnp

    from autoshard.calibrate.programs import matmuls, model

    steps = {**STEPS, **LATER_STEPS}
    out: dict[str, Callable[[], Any]] = {name: partial(model, "transformer", **of) for name, of in steps.items()}
    for k, shape in enumerate((*SHAPES, *LATER_SHAPES)):
        out[f"matmul {'x'.join(map(str, shape))} bf16"] = partial(matmuls, *shape, jnp.bfloat16)
        if k % 2 == 0:
            out[f"matmul {'x'.join(map(str, shape))} f32"] = partial(matmuls, *shape, jnp.float32)
    return out


def measure(folder: Path, only: str) -> None:
    """Calibrate, run what was held out, and write both."""
    import jax

    from autoshard.calibrate import calibrate
    from autoshard.calibrate.compiled import run_programs
    from autoshard.costmodels.calibration import profile_yaml

    folder.mkdir(exist_ok=True)
    card = jax.devices()[0].device_kind
    name = "".join(c if c.isalnum() else "_" for c in card.lower())
    found = calibrate(date=date.today().isoformat(), name=name, progress=lambda text: print(text, flush=True))
    (folder / f"{name}.yaml").write_text(profile_yaml(found.profile))
    data = {"card": card, "jax": jax.__version__, "calibration": found.to_dict(), "held_out": {}, "failed": []}
    place = folder / f"{name}.json"
    place.write_text(json.dumps(data, indent=1) + "\n")
    print(f"calibrated: {found.work}")
    chosen = {program: make for program, make in held_out().items() if only in program}
    data["held_out"], data["failed"] = run_programs(chosen, progress=lambda text: print(text, flush=True))
    place.write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(data["held_out"], indent=1), data["failed"])


def refit(path: Path) -> None:
    """What was measured, fitted again: the calibration in the results, and the profile beside it."""
    from autoshard.calibrate.compiled import fit_work, unfitted, usual_programs
    from autoshard.costmodels import load_profile, place_mesh
    from autoshard.costmodels.calibration import profile_yaml
    from autoshard.costmodels.compiled import CompiledWork

    data, place = json.loads(path.read_text()), path.with_suffix(".yaml")
    profile = load_profile(place)
    assert profile.compiled_work is not None
    times = {point["program"]: point["seconds"] for point in data["calibration"]["programs"]}
    at_peak = CompiledWork(**unfitted(profile.vendor), source=profile.compiled_work.source)
    machine = place_mesh(profile.model_copy(update={"compiled_work": at_peak}), {"x": 1})
    figures, points = fit_work(usual_programs(), times, machine, profile.compiled_work.memory)
    data["calibration"]["programs"] = [point.to_dict() for point in points]
    path.write_text(json.dumps(data, indent=1) + "\n")
    fitted = CompiledWork(**figures, source=profile.compiled_work.source)
    place.write_text(profile_yaml(profile.model_copy(update={"compiled_work": fitted})))
    print(f"{data['card']}: {figures}")


def report(path: Path, keep: Path | None) -> None:
    """What autoshard says of the programs, beside what was measured."""
    import autoshard
    from autoshard.api.simulate import simulate
    from autoshard.simulation.ahead import compiler_for

    data = json.loads(path.read_text())
    programs, rows, said = held_out(), [], set[str]()
    for name, measured in data["held_out"].items():
        step, specs, donated = programs[name]()
        plan = autoshard.plan(
            step, *specs, mesh={"x": 1}, hardware=str(path.with_suffix(".yaml")), donate_argnums=donated, effort=0.1
        )
        steps = {"plan": plan.cost.step_s}
        if (why := compiler_for(plan.machine).missing(plan.machine)) is not None:
            said.add(why)
        else:
            text: Any = None if keep is None else partial(_kept, keep / f"{name.replace(' ', '_')}.txt")
            steps["simulated"] = simulate(plan, compiler="gpu", keep=text).seconds
        rows.append((name, measured, steps))
    for why in said:
        print(f"Nothing is simulated: {why}\n")
    print(f"{data['card']}, jax {data['jax']}\n")
    print("| program | measured | plan | simulated |\n|---|---|---|---|")
    for name, measured, steps in rows:
        told = [f"{steps[k] / measured - 1:+.0%}" if k in steps else "" for k in ("plan", "simulated")]
        print(f"| {name} | {measured * 1e3:.3f} ms | {' | '.join(told)} |")
    later = {*LATER_STEPS, *(f"matmul {'x'.join(map(str, shape))}" for shape in LATER_SHAPES)}
    for what, matmul in (("matmuls", True), ("train steps", False)):
        for which in ("", "later "):
            among = [row for row in rows if row[0].startswith("matmul") is matmul]
            among = [row for row in among if not which or row[0].removesuffix(" bf16").removesuffix(" f32") in later]
            for kind in ("plan", "simulated"):
                offs = [abs(steps[kind] / measured - 1) for _, measured, steps in among if kind in steps]
                if offs:
                    ten, fifteen = (sum(o <= most for o in offs) for most in (0.1, 0.15))
                    near = f"{ten} of {len(offs)} within 10%, {fifteen} within 15%, at most {max(offs):.0%}"
                    print(f"{which}{what}, {kind}: {median(offs):.1%} off in the median, {near}")


def _kept(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "refit", "report"))
    parser.add_argument("--results", type=Path, default=RESULTS / "nvidia_h100_80gb_hbm3.json")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where to write what was measured")
    parser.add_argument("--only", default="", help="of what is held out, measure only names with this in them")
    parser.add_argument("--keep", type=Path, help="a folder for compiled texts")
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure(arguments.out, arguments.only)
    elif arguments.what == "refit":
        refit(arguments.results)
    else:
        from autoshard.simulation import ahead

        ahead.prepare()
        report(arguments.results, arguments.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
