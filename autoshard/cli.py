"""The command line: reads arguments, calls the library, prints. Heavy libraries are imported by the commands."""

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from autoshard import __version__
from autoshard.errors import AutoshardError, InputError

EXIT_INTERRUPTED = 130
"""What shells report for a program stopped by Ctrl-C."""

app = typer.Typer(
    name="autoshard",
    help="Decide how every tensor of a program is split over a mesh of accelerators, with a proven gap.",
    epilog="Exit codes: 0 done, 2 bad input, 3 constraints cannot hold, 4 out of time with no plan.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

F = TypeVar("F", bound=Callable[..., Any])


def _fail(error: Exception, code: int) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(code)


def reports_errors(command: F) -> F:
    """Errors about the user's input become a message on stderr and an exit code, without a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except AutoshardError as error:
            _fail(error, error.exit_code)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise SystemExit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # the reader of our output went away (| head); keep Python from complaining at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(EXIT_INTERRUPTED) from None
        except ValueError as error:
            from costmodels.errors import ProfileError

            if isinstance(error, ProfileError):
                _fail(error, InputError.exit_code)
            raise

    return run  # type: ignore[return-value]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"autoshard {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
@reports_errors
def solve(
    config: Annotated[Path, typer.Argument(help="A YAML file: what to plan, on which mesh and machine.")],
    output: Annotated[Path | None, typer.Option(help="Directory for plan.json and run.json.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Wall-clock limit such as 60 or 10min; wins over the config.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")] = False,
) -> None:
    """Plan a program: decide how every tensor is split, and prove how good that is."""
    from autoshard.config import load_config
    from autoshard.config.units import seconds
    from autoshard.devices import simulate_devices

    settings = load_config(config)
    try:
        limit_s = seconds(_number(time_limit)) if time_limit is not None else settings.time_limit_s
    except InputError as error:
        raise InputError(f"--time-limit: {error}") from None
    if settings.settings.devices == "simulated":
        simulate_devices(settings.mesh.size)
    from autoshard.session import solve_session

    session = solve_session(settings, time_limit_s=limit_s, output=output, quiet=as_json)
    if as_json:
        print(json.dumps(session.to_dict(), indent=1))
    else:
        session.show()
    if not session.verified:
        raise SystemExit(1)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@app.command()
@reports_errors
def verify(
    plan: Annotated[Path, typer.Argument(help="A plan.json written by solve.")],
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
    from autoshard.devices import simulate_devices

    simulate_devices(count)
    from autoshard.session import verify_session

    report = verify_session(plan)
    if as_json:
        print(json.dumps(report.to_dict(), indent=1))
    else:
        print(report)
    if not report.ok:
        raise SystemExit(1)


@app.command()
@reports_errors
def hardware(
    name: Annotated[str | None, typer.Argument(help="A profile's name, or the path of a YAML profile.")] = None,
) -> None:
    """List the hardware profiles, or show one with its sources."""
    from autoshard.report.hardware import show_profile, show_profiles

    if name is None:
        show_profiles()
    else:
        show_profile(name)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        app(args=arguments, prog_name="autoshard")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


__all__ = ["EXIT_INTERRUPTED", "app", "main"]

if __name__ == "__main__":
    sys.exit(main())
