"""``autoshard report``: a page about plans, or what is in them for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import reports_errors

FORMATS = ("html", "perfetto", "model-explorer", "csv")


@reports_errors
def report(
    plans: Annotated[
        list[Path],
        typer.Argument(help="One plan.json or several, which are shown beside each other.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file to write, a directory for csv.  [default: beside the first plan]"
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option("--format", help="html, perfetto (a trace), model-explorer (a graph) or csv (tables)."),
    ] = "html",
    alternatives: Annotated[
        int, typer.Option(min=0, help="Price other shardings of so many of the largest inputs; takes longer.")
    ] = 0,
) -> None:
    """Write a page about plans, in one file that needs no network; or a trace, a graph or tables.

    What is there already is overwritten.
    """
    from autoshard.errors import InputError

    if form not in FORMATS:
        raise InputError(f"--format: no format {form!r}; there are {', '.join(FORMATS)}")
    if alternatives and form != "html":
        raise InputError(f"--alternatives is for pages (--format html), found --format {form}")
    from autoshard.api.reports import ReportFormat, write_report

    for file in write_report(plans, output, ReportFormat(form), alternatives=alternatives):
        print(f"report: {file}")
