"""The command that runs a plan: in this process, or as a group of local processes."""

from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import TrustOption, json_text, reports_errors
from autoshard.cli.process import code_aside
from autoshard.errors import InputError
from autoshard.trust import allow


@reports_errors
def run(
    plan: Annotated[Path, typer.Argument(help="A plan.json written by solve.")],
    processes: Annotated[
        int, typer.Option(help="Processes of this machine that run it together, each holding its own shards.")
    ] = 1,
    devices_per_process: Annotated[
        int | None, typer.Option(help="Simulated devices of each process; the mesh shared evenly if not given.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Train steps of a model, calls of a function; the config's, else 5 and 1.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of initial state and data; the config's, else 0.")] = None,
    trust: TrustOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print losses and checksums as JSON.")] = False,
) -> None:
    """Run a plan on simulated devices: train steps with their losses, or calls with checksums of the outputs."""
    from autoshard.running.group import existing_plan
    from autoshard.running.program import Job
    from autoshard.running.result import make_setup

    for name, value, least in (("--steps", steps, 1), ("--seed", seed, 0)):
        if value is not None and not least <= value < 2**31:
            raise InputError(f"{name} is {value}; give a whole number from {least} to {2**31 - 1}")
    if trust:
        allow(plan)
    setup = make_setup(Job(str(plan), steps, seed), existing_plan(plan), processes, devices_per_process)
    from autoshard.report.progress import Progress
    from autoshard.running.local import run_setup

    with Progress(quiet=as_json) as progress, code_aside(as_json):
        result = run_setup(setup, progress)
    if as_json:
        print(json_text(result.to_dict()))
    else:
        from autoshard.report.run_tables import print_result

        print_result(result.to_dict())
