"""Arrays that static arguments hold: a method's `self`, which a planned function reads and may not change."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jax import tree_util
from jax.core import Tracer

from autoshard.errors import InputError


class HeldChangedError(InputError):
    """A static argument holds other arrays than those that were planned with: no other plan is meant by that."""


class HeldArrays:
    """The attributes of the static objects of a call, which are parts of the traced function."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._objects = {name: x for name, x in objects.items() if _has_attributes(x)}
        self._before = {name: dict(vars(x)) for name, x in self._objects.items()}
        self._read: dict[str, list[tuple[str, Any]]] = {}

    def check_unchanged(self) -> None:
        """`InputError` where tracing has put its own values into an attribute, which gets its old value back."""
        for name, held in self._objects.items():
            traced = next((path for path, leaf in _attributes(held) if isinstance(leaf, Tracer)), None)
            if traced is None:
                continue
            vars(held).clear()
            vars(held).update(self._before[name])
            raise InputError(
                f"the function changes {name}.{traced}, and {name} is static: a planned function takes arrays and "
                "returns arrays. Take what changes as an argument of its own, and return its new value"
            )

    def reads(self, constants: Sequence[Any]) -> None:
        """Keep which of the held arrays the program reads."""
        read = {id(x) for x in constants}
        for name, held in self._objects.items():
            self._read[name] = [(path, leaf) for path, leaf in _attributes(held) if id(leaf) in read]

    def check_same(self, name: str, held: Any) -> None:
        """`HeldChangedError` where an object that was planned with has other arrays now than those the plan reads."""
        if self._objects.get(name) is not held or not self._read.get(name):
            return
        now = dict(_attributes(held))
        for path, leaf in self._read[name]:
            if now.get(path) is not leaf:
                raise HeldChangedError(
                    f"{name} is static, and the function reads the array {name}.{path}, which is another one than when "
                    "it was planned; take it as an argument of its own"
                )


def _has_attributes(x: Any) -> bool:
    return isinstance(getattr(x, "__dict__", None), dict)  # that of a class is none


def _attributes(held: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of an object's attributes, by their paths."""
    for attribute, value in vars(held).items():
        for path, leaf in tree_util.tree_flatten_with_path(value)[0]:
            yield attribute + tree_util.keystr(path), leaf
