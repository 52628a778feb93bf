"""``autoshard diff``: what differs between two plans."""

from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import json_text, reports_errors


@reports_errors
def diff(
    a: Annotated[Path, typer.Argument(help="A plan.json written by solve.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Another one, of the same program or a similar one.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print all differences as JSON.")] = False,
) -> None:
    """Compare two plans: shardings, where ops run, collectives, cost and memory. Exit code 0, differences or not."""
    from autoshard.api.plans import Plan
    from autoshard.questions.diff import diff_plans

    differences = diff_plans(Plan.load(a), Plan.load(b))
    print(json_text(differences.to_dict()) if as_json else differences)
