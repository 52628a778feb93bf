"""Names of arguments and results: paths of the leaves of pytrees."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from jax import tree_util

RESULT: Final = "out"
"""How the paths of a result begin; those of an argument with this name begin with ``out~2``."""


def leaf_paths(first: str, tree: Any) -> tuple[tuple[str, ...], Any]:
    """The paths of a pytree's leaves, as an argument of this name has them, and its structure."""
    return unique([path_of(first, path) for path in paths_of(tree)]), tree_util.tree_structure(tree)


def path_of(first: str, keys: Iterable[Any]) -> str:
    """The path of a leaf: the name of its argument, then its keys."""
    return "/".join([first, *map(_key, keys)])


def _key(key: Any) -> str:
    """One pytree key: dictionary key, field name, or index."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def names_of_inputs(arguments: Sequence[str], trees: Sequence[Any]) -> tuple[str, ...]:
    """The paths of the leaves of all arguments, given their names and trees."""
    firsts = [f"{name}~2" if name == RESULT else name for name in arguments]
    return unique([path_of(first, path) for first, tree in zip(firsts, trees, strict=True) for path in paths_of(tree)])


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Names made different with ``~2`` where two leaves would share one (a dictionary key with a slash in it)."""
    seen: dict[str, int] = {}
    out: dict[str, None] = {}
    for n in names:
        name = n
        while name in out:
            seen[n] = seen.get(n, 1) + 1
            name = f"{n}~{seen[n]}"
        out[name] = None
    return tuple(out)


def paths_of(tree: Any) -> list[Any]:
    """The keys on the way to each leaf, in the order of the leaves."""
    return [path for path, _ in tree_util.tree_flatten_with_path(tree)[0]]


OTHERS = "a plan is for one set of arguments; autoshard.jit(f, ...) plans others at their first call"


def other_structure(name: str, planned: Any, called: Any) -> str:
    """What differs between the structure of an argument that was planned and of one in a call, in words.

    planned, called: structures (`jax.tree.structure`), which are different.
    """
    had, has = (
        leaf_paths(name, tree_util.tree_unflatten(tree, range(tree.num_leaves)))[0] for tree in (planned, called)
    )
    more, fewer = [path for path in has if path not in had], [path for path in had if path not in has]
    told = []
    if more:
        told.append(f"has {_some(more)}, which it was planned without")
    if fewer:
        told.append(f"has no {_some(fewer)}, which it was planned with")
    if not told:
        told = [f"has the leaves that it was planned with, but {_other_part(planned, called)}"]
    return f"argument {name} {', and '.join(told)}; {OTHERS}"


def _other_part(planned: Any, called: Any) -> str:
    """The first container in which two structures of the same leaves differ."""
    had, has = planned.node_data(), called.node_data()
    if had is None or has is None:  # a leaf, or nothing at all
        return "in containers of other types"
    old, new = had[0], has[0]
    if old is not new:
        return f"in a {new.__name__} for a {old.__name__}"
    for one, other in zip(planned.children(), called.children(), strict=False):
        if one != other:
            return _other_part(one, other)
    return (
        f"a {new.__name__} in it has other static parts (functions and objects without an equality are others each "
        "time they are made: make them once, and plan with what is called)"
    )


def _some(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
