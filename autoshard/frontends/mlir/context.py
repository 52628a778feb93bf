"""MLIR modules with the StableHLO and sdy dialects: parsing text or bytecode, and running passes on them.

The bindings come with jaxlib; JAX itself is not imported. Passes that can end the process on bad input are guarded by
checks before they run, or run in a process of their own (`run_passes_isolated`).
"""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, mpmd, sdy, stablehlo

from autoshard.errors import InputError
from autoshard.frontends.mlir.advice import advice_on
from autoshard.frontends.mlir.places import parsed

_LOCATION = re.compile(r'loc\("(?P<file>[^"]*)":(?P<line>\d+):(?P<column>\d+)\)')
BYTECODE_MAGIC = b"ML\xefR"


@cache
def mlir_context() -> ir.Context:
    """One context for the process, with every dialect that jaxlib knows."""
    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    context.enable_multithreading(False)
    mhlo.register_mhlo_dialect(context)
    for dialect in (sdy, mpmd, chlo, stablehlo):
        dialect.register_dialect(context)
    return context


def parse_module(text: str | bytes, *, verify: bool = True, names_code: bool = False) -> ir.Module:
    """Parse a module; `InputError` with line and message where it is malformed.

    names_code: keep the locations that the text carries, which name the code that it was lowered from. Otherwise every
        op has its own line and column.
    """
    must_be_text(text)
    context = mlir_context()
    with context:
        try:
            module = ir.Module.parse(text) if names_code else parsed(text)
        except ir.MLIRError as error:
            raise InputError(f"cannot read the MLIR module: {error_text(error, advise=True)}") from None
        if verify and not module.operation.verify():
            raise InputError("the MLIR module breaks an invariant of one of its ops")
        return module


def must_be_text(text: object) -> None:
    """`InputError` for anything but text and bytecode, such as an `ir.Module` of another context."""
    if not isinstance(text, str | bytes):
        raise InputError(
            f"give a module as MLIR text or bytecode, found {type(text).__name__}; str(module) is its text"
        )


def error_text(error: ir.MLIRError, *, advise: bool = False) -> str:
    """The diagnostics of an MLIR error, one per line, each with its line and column where it has one.

    advise: add what to try.
    """
    lines = []
    for diagnostic in error.error_diagnostics:
        match = _LOCATION.match(str(diagnostic.location))
        where = f"line {match['line']}, column {match['column']}: " if match and match["line"] != "0" else ""
        more = f"; {advice_on(diagnostic.message)}" if advise else ""
        lines.append(where + diagnostic.message + more)
    return "\n".join(lines) or str(error)


def run_passes(module: ir.Module, pipeline: str) -> None:
    """Run module passes in place; `InputError` with their diagnostics where one fails."""
    with mlir_context():
        try:
            passmanager.PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
        except ir.MLIRError as error:
            raise InputError(f"cannot process the MLIR module: {error_text(error)}") from None


def refuse_fatal_bytecode(data: bytes) -> None:
    """`InputError` for damaged bytecode that makes MLIR's reader end its process; a process of its own tries it."""
    code = (
        "import sys\n"
        "from autoshard.errors import AutoshardError\n"
        "from autoshard.frontends.mlir.context import parse_module\n"
        "try:\n"
        "    parse_module(sys.stdin.buffer.read())\n"
        "except AutoshardError:\n"
        "    pass\n"
    )
    done = _in_child(code, data, 120.0)
    if done.returncode:
        raise InputError("the MLIR bytecode is damaged beyond reading; write the module anew, or give it as text")


def run_passes_isolated(text: str, pipeline: str, *, timeout_s: float = 120.0) -> str:
    """The module as text after `pipeline`, run in a process of its own, because some passes abort on unexpected
    input.
    """
    code = (
        "import sys\n"
        "from autoshard.frontends.mlir.context import parse_module, run_passes, module_text\n"
        "module = parse_module(sys.stdin.read())\n"
        f"run_passes(module, {pipeline!r})\n"
        "sys.stdout.write(module_text(module))\n"
    )
    done = _in_child(code, text.encode(), timeout_s)
    if done.returncode:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        raise InputError(f"the passes {pipeline} failed: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return done.stdout.decode()


def _in_child(code: str, data: bytes, timeout_s: float) -> "subprocess.CompletedProcess[bytes]":
    """Run code in a fresh interpreter that sees this package, with `data` on its standard input."""
    path = os.pathsep.join([str(Path(__file__).resolve().parents[3]), *sys.path])
    env = {**os.environ, "PYTHONPATH": path}
    try:
        return subprocess.run(
            [sys.executable, "-c", code], input=data, capture_output=True, timeout=timeout_s, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"reading the MLIR module in a process of its own took longer than {timeout_s:g} s") from None


def module_text(module: ir.Module) -> str:
    """The module as text that can be parsed back; large constants are kept whole."""
    return str(module.operation.get_asm(enable_debug_info=False))
