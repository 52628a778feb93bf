"""What a compiler makes of a program that JAX has lowered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoshard.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler made of a program: its scheduled HLO text, and what one device holds at its peak, in bytes.

    peak_bytes: None where the compiler does not say.
    """

    text: str
    peak_bytes: int | None


def compile_staged(staged: Any, whose: str, options: Mapping[str, Any] | None = None) -> tuple[Any, int | None]:
    """(the compiled program, its peak in bytes or None). whose: the compiler, for the error that it refuses."""
    try:
        program = staged.compile(compiler_options=dict(options) if options else None)
    except Exception as error:  # XlaRuntimeError and others; the text says what the compiler found
        raise UnsupportedError(f"{whose} refuses the program: {first_lines(error)}") from error
    return program, getattr(program.memory_analysis(), "peak_memory_in_bytes", None)  # older JAX has no such figure


def first_lines(error: Exception, width: int = 300) -> str:
    """The beginning of an error's text, on one line."""
    return " ".join(str(error).split())[:width]
