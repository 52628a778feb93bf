"""Arrays that static objects hold: a method's `self`, which a planned function reads and may not change."""

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import tree_util
from jax.core import Tracer

from autoshard.errors import InputError

OWN = "self"
"""What the object is called that a function brings along itself: that of a bound method, or a callable object."""
_DEPTH = 4
"""So many objects are looked through, each an attribute of the one before (``self.model.layers[0].w`` is in the third);
more are the graphs of loggers and the like, which hold no arrays that a step reads."""
_Step = tuple[str, tuple[Any, ...]]


class HeldChangedError(InputError):
    """A static object holds other arrays than those that were planned with: no other plan is meant by that."""


class HeldArrays:
    """The attributes of the static objects of a call and of the function's own, which are parts of the function traced.

    objects: static arguments and leaves by their paths.
    """

    def __init__(self, objects: Mapping[str, Any], function: Callable[..., Any] | None = None) -> None:
        own = _own(function)
        named = {**objects} if own is None else {OWN: own, **objects}
        self._objects = {name: x for name, x in named.items() if _has_attributes(x)}
        self._before = [(x, dict(vars(x))) for held in self._objects.values() for x in _within(held)]
        self._read: dict[str, list[tuple[tuple[_Step, ...], Any]]] = {}

    def check_unchanged(self) -> None:
        """`InputError` where tracing has put its own values into an attribute, which gets its old value back."""
        for name, held in self._objects.items():
            traced = next((steps for steps, leaf in _attributes(held) if isinstance(leaf, Tracer)), None)
            if traced is None:
                continue
            for x, before in self._before:
                vars(x).clear()
                vars(x).update(before)
            raise InputError(
                f"the function changes {name}{_told(traced)}, and {name} is static: a planned function takes arrays "
                "and returns arrays. Take what changes as an argument of its own, and return its new value"
            )

    def reads(self, constants: Sequence[Any]) -> None:
        """Keep which of the held arrays the program reads."""
        for name, held in self._objects.items():
            leaves = list(_attributes(held))
            read = {id(x) for c in constants for x in _origins(c, [leaf for _, leaf in leaves])}
            self._read[name] = [(steps, leaf) for steps, leaf in leaves if id(leaf) in read]

    @property
    def reads_own(self) -> bool:
        """Whether the program reads arrays of an object that is no argument, but the function's own."""
        return bool(self._read.get(OWN))

    def check_own(self) -> None:
        """`check_same` of the function's own object."""
        if OWN in self._objects:
            self.check_same(OWN, self._objects[OWN])

    def check_same(self, name: str, held: Any) -> None:
        """`HeldChangedError` where an object that was planned with has other arrays now than those the plan reads."""
        if self._objects.get(name) is not held:
            return
        flat: dict[tuple[int, str], dict[Any, Any]] = {}
        for steps, leaf in self._read.get(name, ()):
            if _at(held, steps, flat) is not leaf:
                raise HeldChangedError(
                    f"{name} is static, and the function reads the array {name}{_told(steps)}, which is another one "
                    "than when it was planned; take it as an argument of its own"
                )


def _own(function: Any) -> Any:
    """The object whose method a function is, or which is called itself; None for a function."""
    while not inspect.ismethod(function):
        inner = function.func if isinstance(function, functools.partial) else getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    own = function.__self__ if inspect.ismethod(function) else function
    return own if _is_looked_through(own) else None


def _origins(constant: Any, leaves: Sequence[Any]) -> list[Any]:
    """Those of the leaves that a constant of a traced function may be: itself, or the numpy array that JAX wrapped, or
    made one of its own types of."""
    same = [x for x in leaves if x is constant]
    if same or isinstance(constant, jax.Array):
        return same
    values = np.asarray(constant)
    alike = [x for x in leaves if isinstance(x, np.ndarray) and x.dtype.kind != "O" and x.shape == values.shape]
    return [x for x in alike if np.shares_memory(x, values)] or [
        x for x in alike if np.array_equal(x.astype(values.dtype), values)
    ]


def _has_attributes(x: Any) -> bool:
    return isinstance(getattr(x, "__dict__", None), dict)  # that of a class is none


_NOT_LOOKED_THROUGH = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType)


def _is_looked_through(x: Any) -> bool:
    return _has_attributes(x) and not isinstance(x, _NOT_LOOKED_THROUGH)


def _within(held: Any) -> Iterator[Any]:
    """An object and those that are looked through in it."""
    yield held
    for _, leaf in _attributes(held):
        if _is_looked_through(leaf):
            yield leaf


def _attributes(held: Any) -> Iterator[tuple[tuple[_Step, ...], Any]]:
    """The leaves of an object's attributes and of the objects in them, with the steps to each."""
    seen, level = {id(held)}, [((), held)]
    for _ in range(_DEPTH):
        inner: list[tuple[tuple[_Step, ...], Any]] = []
        for steps, x in level:
            for attribute, value in vars(x).items():
                for path, leaf in _leaves(value):
                    here = (*steps, (attribute, path))
                    yield here, leaf
                    if id(leaf) not in seen and _is_looked_through(leaf):
                        seen.add(id(leaf))
                        inner.append((here, leaf))
        level = inner


def _leaves(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The leaves of an attribute by their paths, also where JAX cannot flatten it: keys of a dictionary that no order
    is known of, say, which are no matter here."""
    try:
        yield from tree_util.tree_flatten_with_path(value)[0]
    except (TypeError, ValueError):
        if isinstance(value, Mapping):
            inside = [(tree_util.DictKey(key), x) for key, x in value.items()]
        elif isinstance(value, list | tuple):
            inside = [(tree_util.SequenceKey(k), x) for k, x in enumerate(value)]
        else:
            return
        for key, x in inside:
            yield from (((key, *path), leaf) for path, leaf in _leaves(x))


def _at(held: Any, steps: Sequence[_Step], flat: dict[tuple[int, str], dict[Any, Any]]) -> Any:
    """What the steps lead to now; None where there is nothing. flat: attributes that were taken apart already."""
    for attribute, path in steps:
        if not _has_attributes(held):
            return None
        here = (id(held), attribute)
        if here not in flat:
            flat[here] = dict(_leaves(vars(held).get(attribute)))
        held = flat[here].get(path)
    return held


def _told(steps: Sequence[_Step]) -> str:
    return "".join(f".{attribute}{tree_util.keystr(path)}" for attribute, path in steps)
