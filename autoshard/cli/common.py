"""What all commands share: how errors end, and how small values are read."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from autoshard.cli.process import drop_output
from autoshard.errors import AutoshardError, InputError

if TYPE_CHECKING:
    from autoshard.config.load import Config

EXIT_INTERRUPTED = 130
"""What shells report for a program stopped by Ctrl-C."""

Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the config: memory_limit=12GiB model.layers=2."),
]
MeshOption = Annotated[str | None, typer.Option("--mesh", help="In place of the config's: data=2,model=4.")]
HardwareOption = Annotated[str | None, typer.Option("--hardware", help="In place of the config's: a machine.")]

F = TypeVar("F", bound=Callable[..., Any])


def reports_errors(command: F) -> F:
    """Errors about the user's input become a message on stderr and an exit code, without a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            result = command(*args, **kwargs)
            sys.stdout.flush()
            return result
        except AutoshardError as error:
            _fail(error, error.exit_code)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise SystemExit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            drop_output()  # the reader of it went away (| head)
            raise SystemExit(EXIT_INTERRUPTED) from None
        except OSError as error:  # of files, a full disk say; what can be told better is told where it happens
            drop_output()
            _fail(InputError(f"{error.filename or 'writing the answer'}: {error.strerror or error}"), 2)
        except ValueError as error:
            from autoshard.costmodels.errors import ProfileError

            if isinstance(error, ProfileError):
                _fail(error, InputError.exit_code)
            raise

    return run  # type: ignore[return-value]


def _fail(error: Exception, code: int) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(code)


def number_or_text(text: str) -> float | str:
    """A number where the text is one, so that units can be left out."""
    try:
        return float(text)
    except ValueError:
        return text


def limit_option(text: str | None) -> float | None:
    """``--time-limit`` in seconds; None where it is not given."""
    from autoshard.units import seconds

    try:
        return None if text is None else seconds(number_or_text(text))
    except InputError as error:
        raise InputError(f"--time-limit: {error}") from None


def mesh_option(text: str) -> dict[str, int]:
    """``x=8,y=4`` as sizes by axis.

    >>> mesh_option("x=8,y=4")
    {'x': 8, 'y': 4}
    """
    sizes: dict[str, int] = {}
    for item in text.split(","):
        name, equals, size = item.partition("=")
        name = name.strip()
        if not equals or not name or not size.strip().isdigit() or int(size) < 1:
            raise InputError(f"--mesh: cannot read {item!r}; write x=8,y=4")
        if name in sizes:
            raise InputError(f"--mesh: axis {name!r} occurs twice")
        sizes[name] = int(size)
    return sizes


def assignments(option: str, items: Sequence[str]) -> dict[str, float]:
    """``["B=1024", "M=4e3"]`` as numbers by name."""
    found: dict[str, float] = {}
    for item in ",".join(items).split(","):
        name, equals, value = item.partition("=")
        number = number_or_text(value)
        if not equals or not name.strip() or not isinstance(number, float) or not 0 < number < float("inf"):
            raise InputError(f"{option}: cannot read {item!r}; write NAME=NUMBER with a positive number")
        found[name.strip()] = number
    return found


def links_option(items: Sequence[str]) -> dict[str, str] | None:
    """``["data=dcn"]`` as the link of each axis."""
    found: dict[str, str] = {}
    for item in items:
        axis, equals, link = item.partition("=")
        if not equals or not axis.strip() or not link.strip():
            raise InputError(f"--link: cannot read {item!r}; write AXIS=LINK, such as data=dcn")
        found[axis.strip()] = link.strip()
    return found or None


def config_of(config: str, changes: list[str] | None, mesh: str | None, hardware: str | None) -> "Config":
    """The config of a file, or of standard input for ``-``, with what the command line changes."""
    from autoshard.config.changes import mesh_change
    from autoshard.config.load import load_config, load_config_text

    put = [] if mesh is None else [mesh_change(mesh_option(mesh))]
    put += [] if hardware is None else [f"hardware={hardware}"]
    if config == "-":
        return load_config_text(sys.stdin.read(), "stdin", [*put, *(changes or ())])
    return load_config(config, [*put, *(changes or ())])
