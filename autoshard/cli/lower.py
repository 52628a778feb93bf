"""The command that hands a plan to JAX in another form, and says what XLA makes of it."""

from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import TrustOption, json_text, reports_errors
from autoshard.cli.process import code_aside
from autoshard.errors import InputError
from autoshard.trust import allow

ONNX = "onnx"
NAMES = ("explicit", "constraints", "shardings", "mlir", ONNX)
"""Names of targets; the first four are those of `autoshard.api.targets.TARGETS`, which imports JAX."""


@reports_errors
def lower(
    plan: Annotated[Path, typer.Argument(help="A plan.json written by solve.")],
    target: Annotated[
        str,
        typer.Option(
            help="explicit: collectives written out; constraints: a sharding constraint on every value; shardings: of "
            "inputs and outputs only; mlir: StableHLO with sdy shardings on the plan's mesh; onnx: annotated model."
        ),
    ] = "explicit",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the StableHLO text, or the ONNX model.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Compile on simulated devices, compare the collectives.")
    ] = True,
    trust: TrustOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Lower a plan; report which planned collectives XLA keeps, changes, drops or adds."""
    if target not in NAMES:
        raise InputError(f"--target: no target {target!r}; there are {', '.join(NAMES)}")
    if target == ONNX:
        _write_onnx(plan, output, as_json)
        return
    if trust:
        allow(plan)
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
        check_writable(output, [plan])
    simulate_devices(devices)
    from autoshard.running.program import load

    with code_aside(as_json):
        lowered = load(str(plan))[0].lower(target)
        if output is not None:
            write_text(output, lowered.stablehlo())
        comparison = lowered.report() if report else None
    if as_json:
        summary = {"target": target, "output": None if output is None else str(output)}
        print(json_text({**summary, **({} if comparison is None else comparison.to_dict())}))
        return
    if comparison is not None:
        print(comparison)
    if output is not None:
        print(f"StableHLO: {output}")


def _write_onnx(plan: Path, output: Path | None, as_json: bool) -> None:
    """Write the annotated model of a plan, and print what its annotations cannot express."""
    from autoshard.api.onnx_export import export_plan
    from autoshard.api.plans import Plan
    from autoshard.files import check_writable

    if output is None:
        raise InputError("--target onnx writes a model: name its file with --output, such as planned.onnx")
    check_writable(output, [plan])
    export = export_plan(Plan.load(plan), output, name=str(plan))
    if as_json:
        print(json_text({"target": ONNX, "output": str(output), **export.to_dict()}))
        return
    folded = f"; {export.folded} are shape arithmetic or constants and have none" if export.folded else ""
    print(f"annotated {export.annotated} nodes{folded}")
    for line in export.unsaid:
        print(f"not said: {line}")
    print(f"model: {output}")
