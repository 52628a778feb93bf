"""The commands about whole programs: solve and verify; and the table of machines."""

from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import (
    Changes,
    HardwareOption,
    MeshOption,
    TrustOption,
    config_of,
    json_text,
    number_or_text,
    reports_errors,
)
from autoshard.cli.process import code_aside
from autoshard.errors import InfeasibleError, InputError, OutOfTimeError
from autoshard.trust import allow


@reports_errors
def solve(
    config: Annotated[
        str, typer.Argument(help="A YAML file: what to plan, on which mesh and machine; - reads standard input.")
    ],
    changes: Changes = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Directory for plan.json and run.json.")] = None,
    mesh: MeshOption = None,
    hardware: HardwareOption = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Wall-clock limit such as 60 or 10min; wins over the config.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all tables before the verdict.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Plan a program: decide how every tensor is split, and prove how good that is.

    Ends with the verdict; `autoshard show` has the tables. Exit code 3 where it is proved that no plan exists, 4 where
    none was found and that is not proved.
    """
    from autoshard.devices import simulate_devices
    from autoshard.units import seconds

    if quiet and verbose:
        raise InputError("--quiet prints nothing but errors, --verbose prints all tables: give one of them")
    settings = config_of(config, changes, mesh, hardware)
    try:
        limit_s = seconds(number_or_text(time_limit)) if time_limit is not None else settings.time_limit_s
    except InputError as error:
        raise InputError(f"--time-limit: {error}") from None
    if settings.settings.devices == "simulated":
        simulate_devices(settings.mesh.size)
    from autoshard.api.session import solve_session

    try:
        with code_aside(as_json):
            session = solve_session(settings, time_limit_s=limit_s, output=output, quiet=as_json or quiet)
    except InfeasibleError as error:
        if as_json:
            failure = {"error": str(error), "conflict": list(error.conflict), "facts": error.facts}
            print(json_text({"status": "infeasible", **failure}))
        raise
    except OutOfTimeError as error:
        if as_json:
            print(json_text({"status": "not found", "error": str(error), "facts": error.facts}))
        raise
    if as_json:
        print(json_text(session.to_dict()))
    elif not quiet or not session.verified:
        session.show(tables=verbose)
    if not session.verified:
        raise SystemExit(1)


@reports_errors
def verify(
    plan: Annotated[Path, typer.Argument(help="A plan.json written by solve.")],
    trust: TrustOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check a plan: statements and costs, compiled collectives, and results against one device."""
    from autoshard.files import read_json

    data = read_json(plan, what="plan")
    try:
        count = 1
        for size in data["mesh"]["axes"].values():
            count *= int(size)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InputError(f"{plan} is not a plan of autoshard: it has no mesh.axes") from None
    if trust:
        allow(plan)
    from autoshard.devices import simulate_devices

    simulate_devices(count)
    from autoshard.api.session import verify_session

    with code_aside(as_json):
        report = verify_session(plan)
    if as_json:
        print(json_text(report.to_dict()))
    else:
        print(report)
    if not report.ok:
        raise SystemExit(1)


@reports_errors
def show(
    plan: Annotated[Path, typer.Argument(help="A plan.json written by solve.")],
    sections: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SECTION",
            help="Of inputs, collectives, step, memory, baselines, meshes and notes; all where none is named.",
        ),
    ] = None,
) -> None:
    """Show the tables of a plan: how inputs are split, collectives, step time, memory, baselines."""
    from autoshard.errors import listing
    from autoshard.plan_record.record import PlanRecord
    from autoshard.report.plan_tables import SECTIONS, print_plan
    from autoshard.report.verdict import verdict

    for section in sections or ():
        if section not in SECTIONS:
            raise InputError(f"a plan has no section {section!r}; {listing(section, SECTIONS)}")
    data = PlanRecord.load(plan).to_dict()
    print_plan(data, sections or ())
    if not sections:
        for line in verdict(data):
            print(line)


@reports_errors
def specs(
    plan: Annotated[Path, typer.Argument(help="A plan.json written by solve.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.")] = None,
    rules: Annotated[
        str | None,
        typer.Option(help="Instead, rules for logical axes (maxtext or flax), and what they cannot say of the plan."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Mesh and specs (or the rules) as JSON.")] = False,
) -> None:
    """Take the shardings of a plan away: PartitionSpecs by path, as a Python file that needs JAX only; or rules."""
    from autoshard.api.plans import Plan
    from autoshard.api.specs import layouts, python_text, spec_of
    from autoshard.files import check_writable, write_text

    if output is not None:
        check_writable(output, [plan])
    loaded = Plan.load(plan)
    if rules is not None:
        if rules not in ("maxtext", "flax"):
            raise InputError(f"--rules: there are rules for maxtext and flax, found {rules!r}")
        made = loaded.logical_axis_rules()
        if as_json:
            text = json_text(made.to_dict()) + "\n"
        else:
            text = made.maxtext() if rules == "maxtext" else made.flax()
    elif as_json:
        mesh = loaded.schedule.mesh
        axes = dict(zip(mesh.mesh.axis_names, mesh.mesh.axis_sizes, strict=True))
        named = {name: list(spec_of(layout, mesh, name)) for name, layout in layouts(loaded).items()}
        text = json_text({"mesh": axes, "specs": named}) + "\n"
    else:
        text = python_text(loaded)
    if output is None:
        print(text, end="")
    else:
        write_text(output, text)


@reports_errors
def hardware(
    name: Annotated[str | None, typer.Argument(help="A profile's name, or the path of a YAML profile.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """List the hardware profiles, or show one with its sources."""
    from autoshard.costmodels import load_profile
    from autoshard.costmodels.hardware_tables import hardware_overview
    from autoshard.report.hardware import show_profile, show_profiles

    if as_json:
        print(json_text(hardware_overview() if name is None else load_profile(name).to_dict()))
    elif name is None:
        show_profiles()
    else:
        show_profile(name)
