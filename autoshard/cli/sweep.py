"""``autoshard sweep``: one config over many values of its keys, with a table that goes on where it stopped."""

from pathlib import Path
from typing import Annotated, Any

import typer

from autoshard.cli.common import limit_option, reports_errors
from autoshard.errors import InputError


@reports_errors
def sweep(
    config: Annotated[Path, typer.Argument(help="A YAML file: what to plan, on which mesh and machine.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to the config, the same for all points."),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=[VALUE, ...]",
            help="A key and its values: hardware=[tpu_v5e, h100], 'mesh=[{data: 8}, {data: 4, model: 2}]'; several of "
            "these give all combinations.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The table (CSV), written after every point; its rows are kept.")
    ] = Path("sweep.csv"),
    time_limit: Annotated[str | None, typer.Option(help="Wall-clock limit of each point, such as 60 or 10min.")] = None,
) -> None:
    """Solve a config over meshes, machines, models or limits: a row each; what the table has is not solved again."""
    from autoshard.api.sweep import sweep
    from autoshard.files import check_writable
    from autoshard.report.progress import Progress
    from autoshard.report.strategies import print_sweep

    values = _values(over or [])
    limit_s = limit_option(time_limit)
    check_writable(output, [config])
    with Progress() as progress:
        swept = sweep(
            config, values, changes=changes or (), results=output, time_limit_s=limit_s, progress=progress
        )  # fmt: skip
    print_sweep(swept.keys, swept.rows)
    print(f"table: {output}")


def _values(over: list[str]) -> dict[str, list[Any]]:
    from autoshard.config.yaml_text import load_yaml

    values: dict[str, list[Any]] = {}
    for item in over:
        key, equals, text = item.partition("=")
        listed = load_yaml(text, f"--over {item!r}").data if equals and text.strip() else None
        if not key.strip() or not isinstance(listed, list) or not listed:
            raise InputError(f"--over: cannot read {item!r}; write KEY=[VALUE, ...], such as hardware=[tpu_v5e, h100]")
        if key.strip() in values:
            raise InputError(f"--over: {key.strip()!r} occurs twice")
        values[key.strip()] = listed
    if not values:
        raise InputError("--over: name a key and its values, such as --over 'hardware=[tpu_v5e, h100]'")
    return values
