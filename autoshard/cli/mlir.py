"""The commands propagate and check, for MLIR modules (ONNX models: `onnx.py`), and reading modules for explain."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoshard.cli.common import json_text, reports_errors
from autoshard.cli.guarded import guarded
from autoshard.cli.onnx import check_model, finding_data, is_onnx, lines, propagate_model, shape_option
from autoshard.errors import AutoshardError, InputError

if TYPE_CHECKING:
    from autoshard.frontends.mlir.check import Diagnostic

STDIN = "-"
_STDIN_NAME = "<stdin>"

Files = Annotated[
    list[str],
    typer.Argument(
        help="StableHLO with sdy shardings, text or bytecode (- is stdin), or ONNX models (.onnx, .json, .textproto)."
    ),
]
Configuration = Annotated[str | None, typer.Option(help="ONNX: the configuration of devices that is meant.")]
Shape = Annotated[list[str] | None, typer.Option(help="ONNX: a number for a symbolic dimension, batch=8; repeatable.")]
Strategy = Annotated[
    str | None,
    typer.Option(help="basic, aggressive, op-priority or user-priority: that step alone; without, the whole pipeline."),
]
Conservative = Annotated[bool, typer.Option("--conservative", help="Pass no sub-axes on.")]


@reports_errors
def propagate(
    files: Files,
    strategy: Strategy = None,
    conservative: Conservative = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the result here; with several files, a directory for their results."
        ),
    ] = None,
    configuration: Configuration = None,
    shape: Shape = None,
    spread: Annotated[
        bool, typer.Option("--spread", help="ONNX: spread the specs as hints, in both directions.")
    ] = False,
    implied: Annotated[
        bool, typer.Option("--implied", help="ONNX: print the communication that the specs imply.")
    ] = False,
) -> None:
    """Spread the shardings in an MLIR module over all its values, as Shardy does; the module comes back.

    In an ONNX model the specs that are missing are filled in.
    """
    targets = _targets(files, output)
    _known_strategy(strategy)
    models = [is_onnx(file) for file in files]
    _only_for_onnx(
        files, {"--configuration": configuration, "--shape": shape, "--spread": spread, "--implied": implied}
    )
    if any(models) and (strategy is not None or conservative):
        raise InputError("--strategy and --conservative are for MLIR modules; ONNX models take --spread")
    if all(models):
        _propagate_models(files, targets, configuration, shape, spread, implied)
        return
    from autoshard.files import write_text
    from autoshard.frontends.mlir.context import mlir_context
    from autoshard.frontends.mlir.older import older_shardings
    from autoshard.propagation.mlir.module import propagate_mlir

    mlir_context()  # once, and not in each copy of the process
    failed = False
    for file, target in zip(files, targets, strict=True):
        try:
            if is_onnx(file):
                _propagate_models([file], [target], configuration, shape, spread, implied)
                continue
            module = read_module(file)
            text = guarded(propagate_mlir, module, strategy=strategy, conservative=conservative)
            if older_shardings(module):
                print(f"note: {shown(file)}: some shardings are not read; autoshard check says which", file=sys.stderr)
            if target is None:
                print(text, end="" if text.endswith("\n") else "\n")
            else:
                write_text(target, text)
        except AutoshardError as error:
            _report(file, error)
            failed = True
    if failed:
        raise SystemExit(InputError.exit_code)


@reports_errors
def check(
    files: Files,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors too, and more is asked for.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    configuration: Configuration = None,
    shape: Shape = None,
) -> None:
    """Check the shardings of MLIR modules and ONNX models. Exit code 2 where anything is wrong; warnings alone are no
    fault.
    """
    _once(files)
    _only_for_onnx(files, {"--configuration": configuration, "--shape": shape})
    shapes = shape_option(shape or [])
    answers: list[dict[str, object]] = []
    errors = warnings = unruled = 0
    for file in files:
        name = shown(file)
        try:
            if is_onnx(file):
                checked = check_model(file, configuration, strict, shapes)
                errors += len(checked.errors)
                warnings += len(checked.warnings)
                unruled += len(checked.no_rule)
                data = [finding_data(f) for f in checked.findings]
                answers.append({"file": name, "ok": checked.ok, "findings": data, "notes": list(checked.notes)})
                if not as_json:
                    print("".join(f"{line}\n" for line in lines(name, checked)), end="")
                continue
            from autoshard.frontends.mlir.check import check_mlir

            diagnostics = check_mlir(read_module(file), strict=strict)
        except AutoshardError as error:  # a file that cannot be read; the others still are
            errors += 1
            answers.append({"file": name, "ok": False, "findings": [_unreadable(str(error))]})
            if not as_json:
                print(f"error: {error}", file=sys.stderr)
            continue
        wrong = sum(d.severity == "error" for d in diagnostics)
        errors += wrong
        warnings += len(diagnostics) - wrong
        answers.append({"file": name, "ok": not wrong, "findings": [_finding(d) for d in diagnostics]})
        if not as_json:
            for finding in diagnostics:
                print(finding_line(name, finding))
    if as_json:
        print(json_text(answers))
    else:
        more = f", {unruled} without rule" if unruled else ""
        print(f"{_count(len(files), 'file')}: {_count(errors, 'error')}, {_count(warnings, 'warning')}{more}")
    if errors:
        raise SystemExit(InputError.exit_code)


def _propagate_models(
    files: Sequence[str],
    targets: Sequence[Path | None],
    configuration: str | None,
    shape: list[str] | None,
    spread: bool,
    implied: bool,
) -> None:
    failed = False
    for file, target in zip(files, targets, strict=True):
        try:
            propagate_model(
                file,
                target,
                configuration=configuration,
                shapes=shape_option(shape or []),
                spread_hints=spread,
                show_implied=implied,
            )
        except AutoshardError as error:
            if len(files) == 1:
                raise
            _report(file, error)
            failed = True
    if failed:
        raise SystemExit(InputError.exit_code)


def _only_for_onnx(files: Sequence[str], options: Mapping[str, object]) -> None:
    other = [file for file in files if not is_onnx(file)]
    used = [name for name, value in options.items() if value]
    if other and used:
        raise InputError(f"{used[0]} is for ONNX models; {shown(other[0])} is none by its name")


def finding_line(name: str, found: "Diagnostic") -> str:
    """``file:line:col: what is wrong; what to try`` in one line, marked where it is a warning."""
    place = f"{name}:{found.line}:{found.column}" if found.line else name
    kind = "" if found.severity == "error" else f"{found.severity}: "
    message = " ".join(found.message.split())
    return f"{place}: {kind}{message}" + (f"; {found.advice}" if found.advice else "")


def read_module(file: str) -> str | bytes:
    """The text of a module, or its bytes where it is bytecode; ``-`` is standard input."""
    from autoshard.files import decode_text, read_bytes
    from autoshard.frontends.mlir.context import BYTECODE_MAGIC, refuse_fatal_bytecode

    data = sys.stdin.buffer.read() if file == STDIN else read_bytes(file, what="MLIR module")
    if data.startswith(BYTECODE_MAGIC):
        try:
            refuse_fatal_bytecode(data)
        except InputError as error:
            raise InputError(f"{shown(file)}: {error}") from None
        return data
    return decode_text(data, shown(file), what="MLIR module")


def shown(file: str) -> str:
    """The name of a file in messages."""
    return _STDIN_NAME if file == STDIN else file


def _targets(files: Sequence[str], output: Path | None) -> list[Path | None]:
    """The file for each result (None: standard output); `InputError` where two results would have the same file."""
    _once(files)
    if len(files) == 1:
        into = output / _result_name(files[0]) if output is not None and output.is_dir() else output
        return [into]
    if output is None:
        raise InputError(f"propagate: {len(files)} files need --output DIR for their results")
    if output.exists() and not output.is_dir():
        raise InputError(f"--output: {output} is a file; the results of {len(files)} files need a directory")
    names = [_result_name(file) for file in files]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"--output: several of the files are called {twice[0]}; propagate them one by one")
    return [output / name for name in names]


def _result_name(file: str) -> str:
    return "stdin.mlir" if file == STDIN else Path(file).name


def _once(files: Sequence[str]) -> None:
    if list(files).count(STDIN) > 1:
        raise InputError("standard input (-) can be read once only")


def _known_strategy(strategy: str | None) -> None:
    if strategy is not None:
        from autoshard.propagation.engine import Strategy

        Strategy.from_text(strategy)


def _report(file: str, error: AutoshardError) -> None:
    """An error on stderr, with the file it is about unless the message names it already."""
    message, name = str(error), shown(file)
    prefix = "" if name in message else f"{name}: "
    print(f"error: {prefix}{message}", file=sys.stderr)


def _finding(found: "Diagnostic") -> dict[str, object]:
    return {
        "line": found.line,
        "column": found.column,
        "severity": found.severity,
        "message": found.message,
        "advice": found.advice,
    }


def _unreadable(message: str) -> dict[str, object]:
    return {"line": 0, "column": 0, "severity": "error", "message": message, "advice": ""}


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
