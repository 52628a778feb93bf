"""``autoshard explain``: why one value is split as it is, in an MLIR module or in a plan."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from autoshard.cli.common import json_text, limit_option, reports_errors
from autoshard.cli.guarded import guarded
from autoshard.cli.mlir import STDIN, Conservative, Strategy, read_module, shown
from autoshard.cli.process import code_aside
from autoshard.errors import AutoshardError, InputError


@reports_errors
def explain(
    file: Annotated[str, typer.Argument(help="An MLIR module (- is stdin), or a plan.json written by solve.")],
    value: Annotated[
        str, typer.Argument(help="%x of a module; state/params/wq, dot_general:12, @tag or a pattern of a plan.")
    ],
    strategy: Strategy = None,
    conservative: Conservative = False,
    instead: Annotated[
        str | None,
        typer.Option(help="Another sharding, '[{\"x\"}, {}]': solve the plan again with it and tell what changes."),
    ] = None,
    break_even: Annotated[
        str | None,
        typer.Option(
            help="bandwidth, batch or memory: where the sharding flips as that moves, by itself or against --instead."
        ),
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Wall-clock limit of each search, such as 60 or 10min.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Tell where a value's sharding came from: an axis's source and way in a module, statements and costs in a plan.

    Of a plan also what another sharding would cost (--instead) and from where on it would pay (--break-even).
    """
    if file != STDIN and Path(file).suffix == ".json":
        if strategy is not None or conservative:
            raise InputError("--strategy and --conservative are for MLIR modules; a plan is decided already")
        limit_s = limit_option(time_limit)
        if break_even is not None:
            _break_even(file, value, break_even, instead, limit_s, as_json)
        elif instead is not None:
            _instead(file, value, instead, limit_s, as_json)
        else:
            _explain_plan(file, value, as_json)
    elif instead is not None or break_even is not None or time_limit is not None:
        raise InputError("--instead, --break-even and --time-limit are for plans (a plan.json written by solve)")
    else:
        _explain_module(file, value, strategy, conservative, as_json)


def _explain_module(file: str, value: str, strategy: str | None, conservative: bool, as_json: bool) -> None:
    from autoshard.frontends.mlir.context import module_text, parse_module
    from autoshard.propagation.mlir.explain import explain_mlir

    read = read_module(file)
    # names and lines of bytecode are those of its text form
    try:
        text = read if isinstance(read, str) else module_text(parse_module(read))
        explained = guarded(explain_mlir, text, value, strategy=strategy, conservative=conservative)
    except AutoshardError as error:
        raise type(error)(f"{shown(file)}: {error}") from None
    print(json_text(asdict(explained)) if as_json else explained)


def _instead(file: str, value: str, sharding: str, limit_s: float | None, as_json: bool) -> None:
    from autoshard.api.plans import Plan
    from autoshard.questions.again import options_of
    from autoshard.questions.instead import instead
    from autoshard.report.progress import Progress

    with Progress(quiet=as_json) as progress:
        plan = Plan.load(file)
        options = replace(options_of(plan), progress=progress).within(limit_s)
        answer = instead(plan, value, sharding, options)
    print(json_text(answer.to_dict()) if as_json else answer)


def _break_even(file: str, value: str, by: str, sharding: str | None, limit_s: float | None, as_json: bool) -> None:
    from autoshard.api.plans import Plan
    from autoshard.questions.break_even import break_even, quick_options
    from autoshard.report.progress import Progress

    with Progress(quiet=as_json) as progress, code_aside(as_json):
        plan = Plan.load(file)
        options = replace(quick_options(plan), progress=progress)
        answer = break_even(plan, value, by, instead=sharding, options=options, each_s=limit_s)
    print(json_text(answer.to_dict()) if as_json else answer)


def _explain_plan(file: str, value: str, as_json: bool) -> None:
    from autoshard.api.plans import Plan
    from autoshard.questions.explain import explain_plan

    explained = explain_plan(Plan.load(file), value)
    if as_json:
        print(json_text([item.to_dict() for item in explained]))
    else:
        print("\n".join(map(str, explained)))
