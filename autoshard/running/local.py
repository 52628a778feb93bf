"""A run on this machine: a single process is this one, several are started as a group."""

from collections.abc import Callable, Mapping
from typing import Any

from autoshard.devices import simulate_devices
from autoshard.running.result import RunResult, RunSetup, collect


def run_setup(setup: RunSetup, progress: Callable[[str], None] = lambda text: None) -> RunResult:
    """Run a plan on the processes and devices of its setup."""
    if setup.processes > 1:
        from autoshard.running.group import run_group

        return run_group(setup, progress)
    if setup.simulated:
        simulate_devices(setup.devices_per_process)
    from autoshard.running.program import run

    records: list[Mapping[str, Any]] = []

    def report(record: Mapping[str, Any]) -> None:
        records.append(record)
        if "steps" in record:
            progress("compiling")
        elif "step" in record:
            loss = f", loss {record['loss']:.4f}" if "loss" in record else ""
            progress(f"running: step {record['step'] + 1}{loss}")

    progress("reading the plan")
    run(setup.job, report)
    return collect(setup, [records])
