"""The command line: reads arguments, calls the library, prints. Heavy libraries are imported by the commands."""

import atexit
import gc
import sys
from typing import Annotated

import typer

from autoshard import __version__
from autoshard.cli import (
    annotate,
    calibrate,
    compare,
    cost_transfers,
    diff,
    explain,
    init,
    lower,
    mlir,
    network,
    objectives,
    plans,
    report,
    run,
    schema,
    simulate,
    sweep,
)
from autoshard.cli.common import EXIT_INTERRUPTED
from autoshard.cli.process import drop_output, interrupts_arrive, open_streams

app = typer.Typer(
    name="autoshard",
    help="Decide how every tensor of a program is split over a mesh of accelerators, with a proven gap.",
    epilog="Exit codes: 0 done, 1 verification found something wrong, 2 bad input, 3 no plan exists (proved), "
    "4 no plan was found (in the time or effort given; not proved that none exists), 130 interrupted.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(init.init)
app.command()(plans.solve)
app.command()(plans.show)
app.command()(plans.specs)
app.command()(annotate.annotate)
app.command()(plans.verify)
app.command()(run.run)
app.command()(lower.lower)
app.command()(simulate.simulate)
app.command()(report.report)
app.command()(plans.hardware)
app.command()(explain.explain)
app.command()(compare.compare)
app.command()(objectives.objectives)
app.command()(sweep.sweep)
app.command()(diff.diff)
app.command()(mlir.propagate)
app.command()(mlir.check)
app.command()(calibrate.calibrate)
app.command()(schema.schema)
app.add_typer(cost_transfers.app)  # the commands of `cost`, its own on transfers among them
app.add_typer(network.app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"autoshard {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        open_streams()
        if arguments is None:  # a process of its own: a last garbage collection would walk all its memory for nothing
            atexit.register(gc.freeze)
        with interrupts_arrive():
            app(args=arguments, prog_name="autoshard")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:  # before a command begins
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except OSError as error:  # of what is printed outside of a command: the help
        drop_output()
        if not isinstance(error, BrokenPipeError):
            print(f"error: writing the answer: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


__all__ = ["app", "main"]
