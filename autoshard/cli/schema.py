"""The command that writes the JSON Schemas of configs and plans."""

from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import json_text, reports_errors
from autoshard.errors import InputError, listing

KINDS = ("config", "plan")


@reports_errors
def schema(
    of: Annotated[str, typer.Argument(help="config or plan.")] = "config",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.")] = None,
) -> None:
    """Write the JSON Schema of configs, for editors, or of plan.json."""
    if of not in KINDS:
        raise InputError(f"there is no schema of {of!r}; {listing(of, KINDS)}")
    from autoshard.config.json_schema import config_json_schema, plan_json_schema
    from autoshard.files import write_text

    text = json_text(config_json_schema() if of == "config" else plan_json_schema()) + "\n"
    if output is None:
        print(text, end="")
    else:
        write_text(output, text)
