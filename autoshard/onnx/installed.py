"""The library `onnx`, which is an extra: without it, an error that says what to install."""

from importlib import import_module
from types import ModuleType

from autoshard.errors import UnsupportedError

OLDEST = (1, 18)
"""The first release whose messages have sharding annotations (IR version 11)."""


def onnx_library() -> ModuleType:
    """The module `onnx`; `UnsupportedError` where it is missing or too old."""
    try:
        library = import_module("onnx")
    except ImportError:
        raise UnsupportedError(
            "ONNX models need the library onnx, which is not installed: pip install 'autoshard[onnx]'"
        ) from None
    release = tuple(int(part) for part in library.__version__.split(".")[:2])
    if release < OLDEST:
        raise UnsupportedError(
            f"onnx {library.__version__} knows no sharding annotations; they came with 1.18: "
            "pip install 'autoshard[onnx]'"
        )
    return library
