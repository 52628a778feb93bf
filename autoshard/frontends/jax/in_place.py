"""Arguments that a function changes in place: modules, optimizers and random streams of flax NNX.

As with `nnx.jit`, what is changed inside goes back into the caller's objects after a call. For that the new arrays are
outputs of the program, behind those that the function returns itself. A state that was split off (`nnx.State`) is no
such object, although modules that are merged of it share its variables: steps of states return the next one.
"""

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jax import tree_util

from autoshard.errors import InputError

UPDATED = "updated"
"""The step in the paths of outputs that are the new state of changed arguments: ``out/updated/model/up/kernel``."""


@dataclass(frozen=True)
class Updates:
    """The arrays that a function changes in its arguments.

    returned: by argument and leaf, the number of the leaf of the function's own result that is the new array.
    handed_back: the argument and leaf of each output behind those of the result. paths: their paths in `names`.
    """

    names: tuple[str, ...] = ()
    returned: tuple[tuple[int, int, int], ...] = ()
    handed_back: tuple[tuple[int, int], ...] = ()
    paths: tuple[tuple[Any, ...], ...] = ()

    @property
    def arguments(self) -> tuple[int, ...]:
        """Numbers of the changed arguments."""
        return tuple(sorted({k for k, *_ in (*self.returned, *self.handed_back)}))

    @property
    def note(self) -> str | None:
        """What is said of them in a plan; None where the function returns all of it."""
        if not self.handed_back:
            return None
        changed = " and ".join(dict.fromkeys(self.names))
        return (
            f"the function changes {changed} in place: the new state is among the outputs (out/{UPDATED}/...), and a "
            "call puts it into the objects that it was given"
        )


class Watch:
    """The leaves of arguments before a function runs, to see afterwards which of them it has changed."""

    def __init__(self, arguments: Mapping[int, Any]) -> None:
        self._before = {
            k: (argument, dict(_leaves(argument)), tree_util.tree_structure(argument), watched)
            for k, argument in arguments.items()
            if any(watched := _in_objects(argument))
        }

    def changed(
        self, result: Sequence[Any], names: Sequence[str], donated: frozenset[int]
    ) -> tuple[Updates, list[Any]]:
        """What was changed, and the arrays that have to be handed back behind those of the result.

        A donated argument that is changed comes back whole, because its arrays are gone after a call.
        """
        at = {id(leaf): n for n, leaf in enumerate(result)}
        returned, handed_back, paths, arrays, told = [], [], [], [], []
        for k, (argument, before, structure, watched) in self._before.items():
            after = dict(_leaves(argument))
            _check_structure(names[k], before, after, structure == tree_util.tree_structure(argument))
            pairs = [(n, path, after[path]) for n, path in enumerate(before) if path in after and watched[n]]
            new = [pair for pair in pairs if pair[2] is not before[pair[1]] and _is_array(pair[2])]
            for n, path, leaf in pairs if new and k in donated else new:
                if id(leaf) in at:
                    returned.append((k, n, at[id(leaf)]))
                elif _is_array(leaf):
                    handed_back.append((k, n))
                    paths.append(path)
                    arrays.append(leaf)
                    told.append(names[k])
        return Updates(tuple(told), tuple(returned), tuple(handed_back), tuple(paths)), arrays


def put_back(updates: Updates, arguments: Sequence[Any], used: Mapping[int, Any], outputs: Sequence[Any]) -> None:
    """Give the caller's objects the arrays that a call made.

    used: the arrays that the call took of each argument; they lie as the plan has them, those given may not.
    outputs: the leaves of the function's result, then the arrays that were handed back.
    """
    own = len(outputs) - len(updates.handed_back)
    new = {(k, n): outputs[at] for k, n, at in updates.returned}
    new |= {place: outputs[own + j] for j, place in enumerate(updates.handed_back)}
    for k in updates.arguments:
        leaves, tree = tree_util.tree_flatten(arguments[k])
        arrays = iter(used[k])
        lying = [next(arrays) if _is_array(leaf) else leaf for leaf in leaves]
        now = tree_util.tree_unflatten(tree, [new.get((k, n), leaf) for n, leaf in enumerate(lying)])
        objects, values = (tree_util.tree_leaves(x, is_leaf=_is_whole) for x in (arguments[k], now))
        for old, value in zip(objects, values, strict=True):
            if _is_object(old):
                _take_over(old, value)


def check_apart(updates: Updates, arguments: Sequence[Any], names: Sequence[str]) -> None:
    """`InputError` where a variable stands in two places of which one is changed: a program has two arrays there."""
    changed, seen = set(updates.arguments), {}
    for k, argument in enumerate(arguments):
        for path, leaf in tree_util.tree_flatten_with_path(argument, is_leaf=_is_variable)[0]:
            if not _is_variable(leaf):
                continue
            other, there = seen.setdefault(id(leaf), (k, names[k] + tree_util.keystr(path))), (k, names[k])
            here = names[k] + tree_util.keystr(path)
            if other[1] != here and changed & {other[0], there[0]}:
                raise InputError(
                    f"{other[1]} and {here} are one variable, which the function changes in place; as arguments they "
                    "are two. Split the objects outside of the function (nnx.split), merge them inside (nnx.merge), "
                    "and return their state"
                )


@contextmanager
def outside_told() -> Iterator[None]:
    """`InputError` for a function that changes an object of NNX that is none of its arguments."""
    try:
        yield
    except getattr(sys.modules.get("flax.errors"), "TraceContextError", ()) as error:
        raise InputError(
            f"the function changes an object of flax NNX that is none of its arguments ({str(error).split(' (http')[0]}"
            "); take the object as an argument, from where a call hands its new arrays back: "
            "autoshard.jit(lambda model, x: model(x)) in place of autoshard.jit(model)"
        ) from error


def _take_over(old: Any, new: Any) -> None:
    """Put the arrays of one object of NNX into another of the same structure."""
    if _is_variable(old):
        old[...] = new[...]
        return
    nnx = sys.modules["flax.nnx"]
    nnx.update(old, nnx.state(new))


def _check_structure(name: str, before: Mapping[Any, Any], after: Mapping[Any, Any], same: bool) -> None:
    """Warn where more changed than arrays, which a compiled call cannot hand back."""
    if same:
        return
    made = [path for path in after if path not in before] or [path for path in before if path not in after]
    what = f"{name}{tree_util.keystr(made[0])}" if made else f"an attribute of {name} that is no array"
    does = "makes" if made and made[0] in after else "removes" if made else "changes"
    warnings.warn(
        f"the function {does} {what} in place; the object that is passed to the planned function keeps what it has "
        "there. Return such values, and set attributes (train(), eval()) outside",
        stacklevel=2,
    )


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return tree_util.tree_flatten_with_path(tree)[0]


def _in_objects(tree: Any) -> list[bool]:
    """For each leaf of a tree whether it belongs to an object that may be changed in place."""
    flags: list[bool] = []
    for part in tree_util.tree_leaves(tree, is_leaf=_is_whole):
        flags += [_is_object(part)] * len(tree_util.tree_leaves(part))
    return flags


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or type(leaf) in (bool, int, float, complex)


def _is_object(node: Any) -> bool:
    return _is_nnx(node, ("Pytree", "Object", "Module", "Variable"))


def _is_whole(node: Any) -> bool:
    return _is_object(node) or _is_nnx(node, ("State",))


def _is_variable(node: Any) -> bool:
    return _is_nnx(node, ("Variable",))


def _is_nnx(node: Any, names: tuple[str, ...]) -> bool:
    return any(c.__name__ in names and str(c.__module__).startswith("flax.nnx") for c in type(node).__mro__)
