"""ONNX models: their sharding annotations read, checked, completed and written. Only here is the library `onnx` used.

>>> from autoshard.onnx import load
>>> load("missing.onnx")
Traceback (most recent call last):
    ...
autoshard.errors.InputError: ONNX model missing.onnx does not exist
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoshard.onnx.model import Model, load, save

__all__ = ["Model", "load", "save"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'autoshard.onnx' has no attribute {name!r}")
    return getattr(import_module("autoshard.onnx.model"), name)
