"""How long do train steps of published packages take to plan at full size, and what are their own shardings worth?

    python experiments/full_size/others.py [NAME ...] [--time-limit 80] [--progress]

Each step is made, traced and planned for a 16x16 mesh in a process of its own; the rows are printed as a table of the
README. The packages are those of experiments/third_party, installed as its README says. A step whose package is missing
is skipped with a sentence.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

HARDWARE = "tpu_v5e"
ACCEPTED_GAP, LARGEST_GAP = 0.009, 0.01
"""With what gap a search may end, and the largest one that the experiment takes for an answer."""
IN_CODE = "the package's own"
"""Name of the baseline made of the package's shardings."""
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=256",  # devices for the packages' own meshes
    "JAX_PLATFORMS": "cpu",
    "DECOUPLE_GCLOUD": "TRUE",  # MaxText without Google Cloud
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
MODULES = {"maxtext": "maxtext", "google-tunix": "tunix", "flax": "flax", "optax": "optax"}
"""By the names of pip, what is imported."""


class Watch:
    """Seconds of wall clock and of processors since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.monotonic(), _cpu_s()

    def seconds(self) -> dict[str, float]:
        """As they stand."""
        return {"wall_s": round(time.monotonic() - self.wall, 1), "cpu_s": round(_cpu_s() - self.cpu, 1)}


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(name: str, time_limit: float, progress: bool) -> dict[str, Any]:
    """One row, in this process."""
    import autoshard

    watch = Watch()
    made = steps()[name].make()
    row: dict[str, Any] = {"program": name, "making": watch.seconds()}
    watch = Watch()

    def say(line: str) -> None:
        print(f"{watch.seconds()} {line}", file=sys.stderr, flush=True)

    try:
        with made.within():
            plan = autoshard.plan(
                made.step, *made.arguments, mesh=made.mesh, hardware=HARDWARE, donate_argnums=0,
                argnames=("state", "batch"), time_limit=time_limit, accepted_gap=ACCEPTED_GAP, in_code="ignore",
                baselines=[{"name": IN_CODE, **made.stated, "in_code": True}], progress=say if progress else None,
            )  # fmt: skip
    except autoshard.AutoshardError as error:
        row["error"] = f"{type(error).__name__}: {error}"
    else:
        (own,) = plan.baselines
        row |= {
            "ops": sum(1 for _ in plan.program.walk()), "seconds": plan.run["seconds"], "status": str(plan.status),
            "gap": plan.gap, "step_s": plan.objective_s, "peak_GiB": plan.memory.peak_bytes / 2**30,
            "own_s": own.objective_s, "own_reason": own.reason,
            "own_GiB": None if own.peak_bytes is None else own.peak_bytes / 2**30, "notes": list(plan.notes),
        }  # fmt: skip
    row["whole"] = watch.seconds()
    row["memory_GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return row


def steps() -> Any:
    """The list of steps; importing them imports none of their packages."""
    for file in ("maxtext_steps", "tunix_steps"):
        import_module(file)
    return import_module("steps").STEPS


def row_of(name: str, time_limit: float, progress: bool) -> dict[str, Any]:
    """One row, in a process of its own."""
    command = [sys.executable, __file__, name, "--one", "--time-limit", str(time_limit)]
    command += ["--progress"] if progress else []
    errors = None if progress else subprocess.PIPE
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, stderr=errors, text=True)
    if done.returncode:
        return {"program": name, "error": (done.stderr or "").strip()[-600:] or f"ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def told(row: dict[str, Any]) -> str:
    """A line of the table."""
    if "error" in row:
        return f"{row['program']}: {row['error']} ({row.get('whole', 'no time')})"
    took, whole, own = row["seconds"], row["whole"], row["own_s"]
    rival = f"{own:.3f} | {own / row['step_s']:.2f} | {row['own_GiB']:.1f}" if own else f"none: {row['own_reason']} | |"
    parts = " | ".join(f"{took[part]:.1f}" for part in ("trace", "build", "baselines", "solve"))
    return (
        f"| {row['program']} | {row['ops']:,} | {parts} | {whole['wall_s']} | {whole['cpu_s']} | "
        f"{row['memory_GiB']:.1f} | {row['status']} | {row['gap']:.2%} | {row['step_s']:.3f} | "
        f"{row['peak_GiB']:.1f} | {rival} |"
    )


HEAD = (
    "| program | ops | trace s | build s | own s | search s | whole s | CPU s | memory GiB | status | gap | step s | "
    "peak GiB | own step s | own/plan | own peak GiB |\n" + "| --- " * 16 + "|"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="of steps; all if none is given")
    parser.add_argument("--time-limit", type=float, default=80.0, help="of tracing, building and search, in seconds")
    parser.add_argument("--progress", action="store_true", help="tell what is being done")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.names[0], given.time_limit, given.progress)))
        return 0
    if unknown := [name for name in given.names if name not in steps()]:
        parser.error(f"no program {unknown[0]!r}; there are {', '.join(steps())}")
    bad = 0
    print(HEAD, flush=True)
    for name in given.names or list(steps()):
        missing = [package for package in steps()[name].packages if find_spec(MODULES[package]) is None]
        if missing:
            print(f"{name}: not run, {', '.join(missing)} is not installed", flush=True)
            continue
        row = row_of(name, given.time_limit, given.progress)
        bad += "error" in row or row["gap"] > LARGEST_GAP
        print(told(row), flush=True)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
