"""Code that all commands share: how errors end a command, and how values of options are read."""

import dataclasses
import functools
import inspect
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, get_type_hints

import typer

from autoshard.cli.process import drop_output
from autoshard.errors import AutoshardError, InputError

if TYPE_CHECKING:
    from autoshard.config.load import Config

EXIT_INTERRUPTED = 130
"""The exit code that shells report for a program stopped by Ctrl-C."""

Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Changes to the config: memory_limit=12GiB model.layers=2."),
]
MeshOption = Annotated[str | None, typer.Option("--mesh", help="In place of the config's: data=2,model=4.")]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Import the code that the plan names, from now on: you have looked at it.")
]
HardwareOption = Annotated[str | None, typer.Option("--hardware", help="In place of the config's: a machine.")]

F = TypeVar("F", bound=Callable[..., Any])


def reports_errors(command: F) -> F:
    """Decorator: errors about the user's input become a message on stderr and an exit code, without a traceback."""

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
            drop_output()  # the reader of the pipe is gone (| head)
            raise SystemExit(EXIT_INTERRUPTED) from None
        except OSError as error:  # of files, a full disk say; the callers catch those that they can explain better
            drop_output()
            _fail(InputError(f"{error.filename or 'writing the answer'}: {error.strerror or error}"), 2)
        except Exception as error:
            from autoshard.cli.damage import damage_of
            from autoshard.costmodels.errors import ProfileError

            if isinstance(error, ProfileError):
                _fail(error, InputError.exit_code)
            damage = damage_of((*args, *kwargs.values()))
            if damage is None:
                raise
            _fail(InputError(damage), InputError.exit_code)

    return run  # type: ignore[return-value]


def grouped(command: F) -> F:
    """Decorator: options that belong together are one dataclass for the command, and options of their own for typer.

    A parameter of `command` whose type is a dataclass stands for the fields of that class, in their order; a field's
    type and default are those of its option.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and dataclasses.is_dataclass(hint)}
    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            options += inspect.signature(groups[parameter.name]).parameters.values()
        else:
            options.append(parameter)
    options = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
        return command(**values)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run  # type: ignore[return-value]


def _fail(error: Exception, code: int) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(code)


def json_text(data: Any, *, indent: int | None = 1) -> str:
    """`data` as JSON that every reader takes: numbers that are infinite or none become null.

    >>> json_text({"seconds": float("inf")}, indent=None)
    '{"seconds": null}'
    """
    try:
        return json.dumps(data, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(data), indent=indent, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def number_or_text(text: str) -> float | str:
    """A number where the text is a number without unit, otherwise the text."""
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


MOST_DIGITS = 40
"""Longer sizes of axes are not read: Python refuses numbers of thousands of digits."""


def is_size(text: str) -> bool:
    """Whether text is a size: a whole number from 1 on, of at most `MOST_DIGITS` digits.

    >>> is_size("8"), is_size("0"), is_size("1e3"), is_size("9" * 5000)
    (True, False, False, False)
    """
    plain = text.strip()
    return plain.isdecimal() and len(plain) <= MOST_DIGITS and int(plain) > 0


def mesh_option(text: str) -> dict[str, int]:
    """``x=8,y=4`` as sizes by axis.

    >>> mesh_option("x=8,y=4")
    {'x': 8, 'y': 4}
    """
    sizes: dict[str, int] = {}
    for item in text.split(","):
        name, equals, size = item.partition("=")
        name = name.strip()
        if not equals or not name or not size.strip().isdecimal():
            raise InputError(f"--mesh: cannot read {item!r}; write x=8,y=4")
        if len(size.strip()) > MOST_DIGITS:
            raise InputError(
                f"--mesh: axis {name!r} has a size of {len(size.strip())} digits; no mesh has so many devices"
            )
        if int(size) < 1:
            raise InputError(f"--mesh: axis {name!r} has size {int(size)}; sizes start at 1")
        if name in sizes:
            raise InputError(f"--mesh: axis {name!r} occurs twice")
        sizes[name] = int(size)
    return sizes


def assignments(option: str, items: Sequence[str]) -> dict[str, float]:
    """``["B=1024", "M=4e3"]`` as numbers by name."""
    numbers: dict[str, float] = {}
    for item in ",".join(items).split(","):
        name, equals, value = item.partition("=")
        number = number_or_text(value)
        if not equals or not name.strip() or not isinstance(number, float) or not 0 < number < float("inf"):
            raise InputError(f"{option}: cannot read {item!r}; write NAME=NUMBER with a positive number")
        if name.strip() in numbers:
            raise InputError(f"{option}: {name.strip()} is given twice")
        numbers[name.strip()] = number
    return numbers


def links_option(items: Sequence[str]) -> dict[str, str] | None:
    """``["data=dcn"]`` as the link of each axis."""
    links: dict[str, str] = {}
    for item in items:
        axis, equals, link = item.partition("=")
        if not equals or not axis.strip() or not link.strip():
            raise InputError(f"--link: cannot read {item!r}; write AXIS=LINK, such as data=dcn")
        if axis.strip() in links:
            raise InputError(f"--link: axis {axis.strip()!r} is given twice")
        links[axis.strip()] = link.strip()
    return links or None


def config_of(config: str, changes: list[str] | None, mesh: str | None, hardware: str | None) -> "Config":
    """The config of a file (``-``: of standard input) with the changes of the command line."""
    from autoshard.config.changes import mesh_change
    from autoshard.config.load import load_config, load_config_text

    put = [] if mesh is None else [mesh_change(mesh_option(mesh))]
    put += [] if hardware is None else [f"hardware={hardware}"]
    if config == "-":
        return load_config_text(_standard_input(), "stdin", [*put, *(changes or ())])
    return load_config(config, [*put, *(changes or ())])


def _standard_input() -> str:
    """All of standard input, as UTF-8 text."""
    from autoshard.files import decode_text

    stream = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read() if stream is None else decode_text(stream.read(), "stdin", what="config")
