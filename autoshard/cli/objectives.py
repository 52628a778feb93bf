"""``autoshard objectives``: a plan under both objectives, and what the other one would have chosen."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import json_text, limit_option, reports_errors
from autoshard.errors import InputError


@reports_errors
def objectives(
    plan: Annotated[Path, typer.Argument(help="A plan.json written by solve.", show_default=False)],
    search: Annotated[
        bool, typer.Option("--search", help="Solve the program under the other objective too, and compare both plans.")
    ] = False,
    time_limit: Annotated[
        str | None, typer.Option(help="Wall-clock limit of that search, such as 60 or 10min.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Price a plan where nothing overlaps and where a device waits only for what is not hidden.

    With --search also the plan that the other objective would have chosen, and what choosing this one costs by it.
    """
    from autoshard.api.plans import Plan
    from autoshard.questions.again import options_of
    from autoshard.questions.objectives import price_objectives
    from autoshard.report.objectives import objective_lines
    from autoshard.report.progress import Progress

    if time_limit is not None and not search:
        raise InputError("--time-limit is for the search of the other objective: add --search")
    limit_s = limit_option(time_limit)
    with Progress(quiet=as_json or not search) as progress:
        loaded = Plan.load(plan)
        options = replace(options_of(loaded), progress=progress).within(limit_s)
        answer = price_objectives(loaded, search=search, options=options).to_dict()
    print(json_text(answer) if as_json else "\n".join(objective_lines(answer, str(plan))))
