"""The command that hands a plan to JAX in another form, and says what XLA makes of it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import reports_errors
from autoshard.errors import InputError

NAMES = ("explicit", "constraints", "shardings", "mlir")
"""As in `autoshard.api.targets.TARGETS`, which imports JAX."""


@reports_errors
def lower(
    plan: Annotated[Path, typer.Argument(help="A plan.json written by solve.")],
    target: Annotated[
        str,
        typer.Option(
            help="explicit: collectives written out; constraints: a sharding constraint on every value; shardings: of "
            "inputs and outputs only; mlir: StableHLO with sdy shardings on the plan's mesh."
        ),
    ] = "explicit",
    output: Annotated[Path | None, typer.Option(help="File for the StableHLO text.")] = None,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Compile on simulated devices, compare the collectives.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Lower a plan; report which planned collectives XLA keeps, changes, drops or adds."""
    if target not in NAMES:
        raise InputError(f"--target: no target {target!r}; there are {', '.join(NAMES)}")
    from autoshard.devices import MAX_SIMULATED_DEVICES, simulate_devices
    from autoshard.files import check_writable, write_text
    from autoshard.running.group import existing_plan
    from autoshard.running.result import mesh_axes

    axes = mesh_axes(existing_plan(plan), str(plan))
    devices = 1
    for size in axes.values():
        devices *= size
    if report and devices > MAX_SIMULATED_DEVICES:
        raise InputError(
            f"the mesh has {devices} devices, at most {MAX_SIMULATED_DEVICES} are simulated to compile for; "
            "--no-report writes the text without"
        )
    if output is not None:
        check_writable(output)
    simulate_devices(devices)
    from autoshard.running.program import load

    lowered = load(str(plan))[0].lower(target)
    if output is not None:
        write_text(output, lowered.stablehlo())
    found = lowered.report() if report else None
    if as_json:
        told = {"target": target, "output": None if output is None else str(output)}
        print(json.dumps({**told, **({} if found is None else found.to_dict())}, indent=1))
        return
    if found is not None:
        print(found)
    if output is not None:
        print(f"StableHLO: {output}")
