"""``autoshard compare``: strategies side by side on what a config describes."""

from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import Changes, HardwareOption, MeshOption, config_of, json_text, limit_option, reports_errors
from autoshard.cli.process import code_aside
from autoshard.errors import InputError


@reports_errors
def compare(
    config: Annotated[
        str, typer.Argument(help="A YAML file: what to plan, on which mesh and machine; - reads standard input.")
    ],
    changes: Changes = None,
    mesh: MeshOption = None,
    hardware: HardwareOption = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            help="Names with commas between them, such as basic,user-priority:cost,greedy,joint; all where not given, "
            "and the config's baselines."
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="A strategy of your own: a function of a task that returns shardings."
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the rows to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw cost and memory to this file (.png, .svg or .pdf).")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Wall-clock limit for all, such as 60 or 10min.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Solve a program by every strategy: cost, regret against the proven bound, peak memory and seconds of each."""
    from autoshard.devices import simulate_devices
    from autoshard.files import check_writable, write_text
    from autoshard.report.progress import Progress
    from autoshard.report.strategies import check_plot, print_comparison, write_plot
    from autoshard.strategies.choice import NAMES, StrategyName, strategy_names

    chosen = tuple(map(StrategyName, NAMES)) if strategies is None else strategy_names(strategies)
    if len(set(strategy or ())) < len(strategy or ()):
        raise InputError("--strategy: one of your own strategies is named twice")
    limit_s = limit_option(time_limit)
    if plot is not None:
        check_plot(plot)
    for file in (csv, plot):
        if file is not None:
            check_writable(file, [config])
    if csv is not None and plot is not None and csv.absolute() == plot.absolute():
        raise InputError(f"--csv and --plot name one file, {csv}; give each its own")
    settings = config_of(config, changes, mesh, hardware)
    if settings.mesh_search is not None:
        raise InputError(f"{config}: compare needs the sizes of the mesh; let solve find them first")
    if settings.settings.devices == "simulated":
        simulate_devices(settings.mesh.size)
    from autoshard.api.session import compare_config

    with Progress(quiet=as_json) as progress, code_aside(as_json):
        comparison = compare_config(
            settings, chosen, own=strategy or (), baselines=strategies is None, time_limit_s=limit_s, progress=progress
        )
    if csv is not None:
        write_text(csv, comparison.csv())
    if plot is not None:
        write_plot(plot, comparison.to_dict())
    if as_json:
        print(json_text(comparison.to_dict()))
    else:
        print_comparison(comparison.to_dict())
