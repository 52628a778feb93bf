"""Locations that a module's text carries: they name the code that it was lowered from, not the lines of the text."""

import re

from jaxlib.mlir import ir

_STRING = r'"(?:\\.|[^"\\])*"'
_PIECES = re.compile(rf"{_STRING}|//[^\n]*|(?<=[\s)])loc\(")
_INSIDE = re.compile(rf"{_STRING}|[()]")
_DEFINES = re.compile(r"=\s*$")


def parsed(text: str | bytes) -> ir.Module:
    """The module of a text or bytecode, in which every op has the line and column that it has in the text."""
    own = text if isinstance(text, bytes) else own_places(text)
    module = ir.Module.parse(own)
    if own != text:
        ir.Module.parse(text)  # the locations may be at fault
    return module


def own_places(text: str) -> str:
    """The text with blanks in place of the locations behind its ops and arguments, as long as before.

    Parsed, every op has its own line and column then. Aliases (``#loc1 = loc(...)``) stay, nothing refers to them.

    >>> own_places('return %0 : tensor<2xf32> loc("a(1).py":7:3) // end')
    'return %0 : tensor<2xf32>                    // end'
    """
    if "loc(" not in text:
        return text
    out: list[str] = []
    at = 0
    while (piece := _PIECES.search(text, at)) is not None:
        start = piece.start()
        stop = _end(text, piece.end()) if piece[0] == "loc(" else piece.end()
        is_location = piece[0] == "loc(" and not _DEFINES.search(text[max(0, start - 20) : start])
        out += [text[at:start], re.sub(r"[^\n]", " ", text[start:stop]) if is_location else text[start:stop]]
        at = stop
    return "".join([*out, text[at:]])


def _end(text: str, at: int) -> int:
    """Behind the bracket that closes one which was opened just before; the end of the text where none does."""
    depth = 1
    for piece in _INSIDE.finditer(text, at):
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if not depth:
            return piece.end()
    return len(text)
