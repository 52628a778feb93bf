"""The setup of a run, and its result, on one process or many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from autoshard.devices import MAX_SIMULATED_DEVICES
from autoshard.errors import InputError
from autoshard.running.program import Job

Record = Mapping[str, Any]


@dataclass(frozen=True)
class RunSetup:
    """A job on so many processes with so many devices each. simulated: CPU devices; otherwise the real devices."""

    job: Job
    processes: int
    devices_per_process: int
    simulated: bool = True


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    losses: of a model, one for each step; None for functions. outputs: of the last step, with checksums over all
    processes: ``sum`` and ``l2`` of the elements and the largest magnitude, in float64. held_bytes: of the inputs, for
    each process. whole_bytes: of the inputs, each counted once. compile_s, step_s: seconds.
    """

    setup: RunSetup
    program: str
    mesh: Mapping[str, int]
    steps: int
    seed: int
    losses: tuple[float, ...] | None
    outputs: tuple[Mapping[str, Any], ...]
    held_bytes: tuple[int, ...]
    whole_bytes: int
    compile_s: float
    step_s: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, for ``--json``."""
        return {
            "plan": self.setup.job.plan_file,
            "program": self.program,
            "mesh": dict(self.mesh),
            "processes": self.setup.processes,
            "devices_per_process": self.setup.devices_per_process,
            "steps": self.steps,
            "seed": self.seed,
            "losses": None if self.losses is None else list(self.losses),
            "outputs": [dict(o) for o in self.outputs],
            "held_bytes": list(self.held_bytes),
            "whole_bytes": self.whole_bytes,
            "seconds": {"compile": round(self.compile_s, 3), "steps": [round(s, 4) for s in self.step_s]},
        }


def mesh_axes(plan: Mapping[str, Any], name: str) -> dict[str, int]:
    """Sizes of the mesh axes in the content of a plan file."""
    try:
        return {str(axis): int(size) for axis, size in plan["mesh"]["axes"].items()}
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InputError(f"{name} is not a plan of autoshard: it has no mesh.axes") from None


def make_setup(
    job: Job, plan: Mapping[str, Any], processes: int = 1, devices_per_process: int | None = None
) -> RunSetup:
    """The job on `processes`; `InputError` where its mesh cannot be laid out so.

    plan: the content of the plan file.
    """
    axes = mesh_axes(plan, job.plan_file)
    total, shown = prod(axes.values()), ", ".join(f"{n}={s}" for n, s in axes.items())
    simulated = processes > 1 or not _on_real_devices(plan)
    if simulated and total > MAX_SIMULATED_DEVICES:
        raise InputError(
            f"the mesh ({shown}) has {total} devices; at most {MAX_SIMULATED_DEVICES} are simulated on one machine. "
            "On a pod call jax.distributed.initialize() and plan.jit() on every host (docs/lowering.md)"
        )
    if processes < 1:
        raise InputError(f"--processes is {processes}; give 1 or more")
    each = total // processes if devices_per_process is None else devices_per_process
    if each < 1 or each * processes != total:
        fits = ", ".join(f"{n} x {total // n}" for n in range(1, total + 1) if total % n == 0)
        wanted = f"{processes} processes" + (f" of {each} devices" if devices_per_process is not None else "")
        raise InputError(
            f"the mesh ({shown}) has {total} devices, which {wanted} cannot share evenly; possible: {fits}"
        )
    return RunSetup(job, processes, each, simulated)


def _on_real_devices(plan: Mapping[str, Any]) -> bool:
    """Whether the config of a plan has ``devices: real``."""
    config = plan.get("config")
    settings = config.get("settings") if isinstance(config, Mapping) else None
    return isinstance(settings, Mapping) and settings.get("devices") == "real"


def collect(setup: RunSetup, records: Sequence[Sequence[Record]]) -> RunResult:
    """The result of a run from the records of every process (see `program.run`)."""

    def first(key: str, process: int = 0) -> Record:
        return next(r for r in records[process] if key in r)

    head = first("steps")
    by_step = [r for r in records[0] if "step" in r]
    outputs = []
    from autoshard.running.checksums import combined

    for index, output in enumerate(first("outputs")["outputs"]):
        parts = [tuple(part) for k in range(len(records)) for part in first("outputs", k)["outputs"][index]["parts"]]
        outputs.append({k: output[k] for k in ("name", "shape", "dtype")} | combined(parts))
    return RunResult(
        setup, head["program"], head["mesh"], head["steps"], head["seed"],
        tuple(r["loss"] for r in by_step) if head["trains"] else None,
        tuple(outputs),
        tuple(first("compiled", k)["held_bytes"] for k in range(len(records))),
        first("compiled")["whole_bytes"],
        max(first("compiled", k)["compiled"] for k in range(len(records))),
        tuple(r["seconds"] for r in by_step),
    )  # fmt: skip
