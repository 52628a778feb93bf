"""Keywords of a call that are neither arguments of the function nor options: what may have been meant."""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax import tree_util

from autoshard.errors import InputError

_MEANT = (
    ("in_shardings in_specs in_axis_resources shardings sharding pins pin",
     """state a sharding with constraints=[autoshard.Pin("x", '[{"data"}, {}]')]; x is an input by its path"""),
    ("out_shardings out_specs out_axis_resources",
     """state a sharding with constraints=[autoshard.Pin("out/0", '[{"data"}, {}]')]; out/0 is a result by its path"""),
    ("devices num_devices mesh_shape axis_sizes axis_names", "the devices are mesh={'data': 2, 'model': 4}"),
    ("machine device accelerator chip topology", "the machine is hardware='tpu_v5e' (`autoshard hardware` lists them)"),
    ("memory hbm memory_budget max_memory", "the limit is memory_limit='14GiB'"),
    ("donate_argnames", "donate by position, donate_argnums=0, or plan jax.jit(f, donate_argnames=...)"),
    ("timeout time_budget max_time", "the limit is time_limit='60s'"),
)  # fmt: skip
"""Words of JAX and others that are no options of planning, and the option to give in their place."""
_SHARDINGS = ("in_shardings", "out_shardings", "in_specs", "out_specs")
_MISSPELLED = 0.85
"""How close to an option (by difflib) a name is that a function does not state itself, to be refused."""
_MEANT_BY_WORD = {word: meant for words, meant in _MEANT for word in words.split()}


def meant_by(word: str) -> str:
    """What to give in place of a word of JAX or others that is no option of planning; empty where it is none of them.

    >>> meant_by("machine")
    "the machine is hardware='tpu_v5e' (`autoshard hardware` lists them)"
    """
    return _MEANT_BY_WORD.get(word, "")


def check_keywords(f: Callable[..., Any], given: Mapping[str, Any], options: Sequence[str] = ()) -> None:
    """`InputError` for the first name that is no argument of `f`.

    options: what may have been meant too, by callers that take arguments and options of their own alike; then a name
    that `f` takes by its ``**`` alone must not be one of them misspelled.
    """
    try:
        parameters = inspect.signature(f).parameters
    except (TypeError, ValueError):
        return
    unknown = [name for name in given if name not in parameters]
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in unknown if options else ():
            _check_meant(name, given[name], options)
        return
    if not unknown:
        return
    near = difflib.get_close_matches(unknown[0], [*parameters, *options], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(parameters) or 'none'}"
    if options:
        hint = _MEANT_BY_WORD.get(unknown[0], hint)
        raise InputError(f"the function has no argument {unknown[0]!r}, and planning has no such option; {hint}")
    raise InputError(f"the function has no argument {unknown[0]!r}; {hint}")


def _check_meant(name: str, value: Any, options: Sequence[str]) -> None:
    """`InputError` for a name that a function takes by its ``**``, where it is hardly an argument: no array, and an
    option misspelled or a word of JAX for shardings.
    """
    if any(hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in tree_util.tree_leaves(value)):
        return
    if name in _SHARDINGS:
        told = f"{name}= is no option of planning: {_MEANT_BY_WORD[name]}"
    elif near := difflib.get_close_matches(name, options, n=1, cutoff=_MISSPELLED):
        told = f"{name}= is close to the option {near[0]}= of planning: write {near[0]}="
    else:
        return
    raise InputError(
        f"{told}. The function takes any name and does not list {name}; where it is an argument of it, bind it with "
        f"functools.partial(f, {name}=...)"
    )
