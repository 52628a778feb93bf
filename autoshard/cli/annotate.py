"""The command that writes a plan as annotations for JAX's explicit sharding mode."""

from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import TrustOption, json_text, limit_option, reports_errors
from autoshard.cli.process import code_aside
from autoshard.errors import InputError
from autoshard.trust import allow


@reports_errors
def annotate(
    plan: Annotated[Path, typer.Argument(help="A plan.json written by solve.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.")] = None,
    check: Annotated[
        bool,
        typer.Option("--check/--no-check", help="Compile on simulated devices, and try without each annotation."),
    ] = True,
    time_limit: Annotated[
        str | None, typer.Option(help="Wall-clock limit for trying without, such as 60 or 10min; by default 2min.")
    ] = None,
    trust: TrustOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the annotations as JSON.")] = False,
) -> None:
    """The fewest annotations with which JAX's explicit sharding mode keeps a plan, and what XLA makes of them."""
    limit_s = limit_option(time_limit)
    if trust:
        allow(plan)
    from autoshard.devices import MAX_SIMULATED_DEVICES, simulate_devices
    from autoshard.files import check_writable, write_text
    from autoshard.running.group import existing_plan
    from autoshard.running.result import mesh_axes

    devices = 1
    for size in mesh_axes(existing_plan(plan), str(plan)).values():
        devices *= size
    if check and devices > MAX_SIMULATED_DEVICES:
        raise InputError(
            f"the mesh has {devices} devices, at most {MAX_SIMULATED_DEVICES} are simulated to compile for; --no-check "
            "lists the annotations that explicit mode does not infer, without trying which of them are needed"
        )
    if output is not None:
        check_writable(output, [plan])
    simulate_devices(devices)
    from autoshard.running.program import load

    with code_aside(as_json):
        annotated = load(str(plan))[0].explicit_mode(check=check, time_limit=limit_s)
    text = json_text(annotated.to_dict()) if as_json else str(annotated)
    if output is None:
        print(text)
    else:
        write_text(output, text + "\n")
