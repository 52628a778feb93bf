"""``autoshard calibrate``: measure the devices and write their profile."""

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import json_text, mesh_option, reports_errors
from autoshard.errors import InputError


@reports_errors
def calibrate(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the profile.")] = Path(
        "calibrated.yaml"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and smaller sizes: seconds instead of minutes.")
    ] = False,
    base: Annotated[
        str | None, typer.Option(help="The profile to start from; chosen by device where not given.")
    ] = None,
    mesh: Annotated[
        str | None, typer.Option("--mesh", help="Axes over the devices, x=2,y=4; one axis over all where not given.")
    ] = None,
    programs: Annotated[
        bool | None,
        typer.Option(
            "--programs/--no-programs",
            help="Run whole programs too, and fit how fast compiled work runs; on accelerators by default.",
        ),
    ] = None,
    simulate: Annotated[int | None, typer.Option(help="Simulate so many CPU devices.", min=1, max=64)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print fits and timings as JSON.")] = False,
) -> None:
    """Measure the devices JAX sees: matmul rates, memory, collectives. Writes a profile to plan with."""
    from autoshard.devices import simulate_devices
    from autoshard.files import check_writable, write_text
    from autoshard.report.progress import Progress

    axes = None if mesh is None else mesh_option(mesh)
    if output.suffix not in (".yaml", ".yml"):
        raise InputError(f"--output: a profile is a YAML file, found {output}; name it {output}.yaml")
    check_writable(output)
    if simulate is not None:
        simulate_devices(simulate)
    from autoshard.calibrate import calibrate as measure
    from autoshard.costmodels.calibration import profile_yaml

    with Progress(quiet=as_json) as progress:
        calibration = measure(
            base=base, mesh=axes, quick=quick, name=output.stem, date=date.today().isoformat(), progress=progress,
            programs=programs,
        )  # fmt: skip
    write_text(output, profile_yaml(calibration.profile))
    if as_json:
        print(json_text({**calibration.to_dict(), "profile": str(output)}))
    else:
        from autoshard.report.calibration import show_calibration

        show_calibration(calibration.to_dict())
        print(f"profile: {output}")
