"""The arguments of a call beside those that a function was planned for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax import tree_util
from jax.core import Tracer
from jax.sharding import NamedSharding

from autoshard.errors import InputError
from autoshard.frontends.jax.calls import by_position
from autoshard.frontends.jax.function import TracedFunction
from autoshard.frontends.jax.names import OTHERS, other_structure


def arrays_of(traced: TracedFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments with arrays of a call, in the order of the program; `InputError` where a static part differs."""
    if traced.call is not None:
        return traced.call.taken(args, kwargs)
    return by_position(traced.function, len(traced.in_tree.children()), args, kwargs)


def flat_arguments(traced: TracedFunction, call_args: tuple[Any, ...]) -> list[Any]:
    """The leaves of a call's arguments, with the types the function was traced with; `InputError` where they differ."""
    leaves, tree = tree_util.tree_flatten(call_args)
    if tree != traced.in_tree:
        raise InputError(_other_arguments(traced, call_args))
    named = zip(leaves, traced.in_types, traced.program.input_names, strict=True)
    return [_as_traced(x, wanted, name) for x, wanted, name in named]


@contextmanager
def told_of_arguments(traced: TracedFunction, call_args: tuple[Any, ...], shardings: Any = None) -> Iterator[None]:
    """Where JAX refuses these arguments and they differ from those that were planned, an `InputError` says so.

    shardings: those in which they are taken, in the pytree of the arguments, where that is refused too.
    """
    try:
        yield
    except InputError:
        raise
    except (ValueError, TypeError):
        try:
            leaves = flat_arguments(traced, call_args)
            if shardings is not None:
                _check_places(leaves, tree_util.tree_leaves(shardings), traced.program.input_names)
        except InputError as error:
            raise error from None
        raise


def _check_places(leaves: list[Any], wanted: list[Any], names: Sequence[str]) -> None:
    """`InputError` for the first array that was put elsewhere than a plan takes it."""
    for x, sharding, name in zip(leaves, wanted, names, strict=True):
        if isinstance(x, Tracer) or not isinstance(x, jax.Array) or not x.committed:
            continue
        there: Any = x.sharding
        if not there.is_equivalent_to(sharding, x.ndim):
            same = isinstance(there, NamedSharding) and there.mesh == sharding.mesh
            lies, taken = (there.spec, sharding.spec) if same else (there, sharding)
            raise InputError(
                f"argument {name} lies as {lies}, the plan takes it as {taken}; where the last call returned it, "
                f"carry={{'out/...': '{name}'}} gives both one layout; plan.place(...) moves it, and "
                "autoshard.jit(f, ...) does so in every call"
            )


def _other_arguments(traced: TracedFunction, call_args: tuple[Any, ...]) -> str:
    """What is different in the structure of the arguments."""
    planned = traced.in_tree.children()
    name = traced.program.name
    if len(planned) != len(call_args):
        return f"{name} was planned for {len(planned)} arguments, called with {len(call_args)}"
    names = traced.argument_names
    for k, (was, argument) in enumerate(zip(planned, call_args, strict=True)):
        now = tree_util.tree_structure(argument)
        if was != now:
            return other_structure(names[k], was, now)
    return f"{name} was planned for {traced.in_tree}, called with {tree_util.tree_structure(call_args)}"


def _as_traced(x: Any, wanted: jax.ShapeDtypeStruct, name: str) -> Any:
    """The argument with the type that it was traced with; Python numbers are converted, arrays must fit."""
    if not hasattr(x, "dtype"):
        x = np.asarray(x, wanted.dtype)
    if tuple(np.shape(x)) != tuple(wanted.shape) or x.dtype != wanted.dtype:
        raise InputError(
            f"argument {name} is {x.dtype}{list(np.shape(x))}, "
            f"the program was planned for {wanted.dtype}{list(wanted.shape)}; {OTHERS}"
        )
    return x
