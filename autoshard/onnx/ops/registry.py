"""The table of ops: by domain, name and the opset version since which an op means what its function does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoshard.errors import InputError, UnsupportedError

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"


class NeedsValueError(UnsupportedError):
    """A node needs to know the value of an input while the model is read; `value` names the input."""

    def __init__(self, message: str, value: str) -> None:
        super().__init__(message)
        self.value = value


class NotMappedError(UnsupportedError):
    """There is no mapping to JAX for an op; `op` is its name with the domain."""

    def __init__(self, message: str, op: str) -> None:
        super().__init__(message)
        self.op = op


@dataclass(frozen=True)
class Node:
    """One node as the function of its op sees it.

    attributes: with the schema's defaults; an attribute that is not set and has no default is absent.
    outputs: names, "" for one that nobody takes. version: of the opset of its domain. run: runs a subgraph.
    """

    op: str
    name: str
    version: int
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    run: Callable[..., list[Any]] | None = None
    domain: str = ""
    constants: Sequence[np.ndarray | None] = field(default=())

    def __getitem__(self, key: str) -> Any:
        """An attribute; None where it is not set and has no default."""
        return self.attributes.get(key)

    @property
    def where(self) -> str:
        """The node as errors name it: ``MatMul node 'encoder/q'``."""
        return f"{full_name(self.domain, self.op)} node {self.name!r}"

    def known(self, index: int) -> np.ndarray | None:
        """The value of an input where it is known while the model is read."""
        return self.constants[index] if index < len(self.constants) else None

    def unsupported(self, what: str) -> UnsupportedError:
        """The error that says that this node asks for `what`, which is not supported; not raised here."""
        return UnsupportedError(f"{self.where}: {what}")

    def malformed(self, what: str) -> InputError:
        """The error that says that the attributes or inputs of this node make no sense; not raised here."""
        return InputError(f"{self.where}: {what}")


@dataclass(frozen=True)
class Mapped:
    """A function of an op. static: inputs that must be known while the model is read; they come as NumPy arrays."""

    function: Callable[..., Any]
    since: int
    static: tuple[int, ...] = ()


TABLE: dict[tuple[str, str], list[Mapped]] = {}


def op(
    *names: str, since: int = 1, static: Sequence[int] = (), domain: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of a node and its inputs (None where left out); it returns one result or a tuple."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            entries = TABLE.setdefault((domain, name), [])
            entries.append(Mapped(function, since, tuple(static)))
            entries.sort(key=lambda m: m.since)
        return function

    return register


def normal(domain: str) -> str:
    """The name of a domain; ai.onnx has ""."""
    return "" if domain == "ai.onnx" else domain


def full_name(domain: str, name: str) -> str:
    """The name of an op with its domain, without that of ai.onnx."""
    return f"{domain}::{name}" if normal(domain) else name
