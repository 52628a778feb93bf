"""Arguments that have a shape and a type of elements, and are no arrays of a program."""

from typing import Any

import jax
import numpy as np
from jax import tree_util

from autoshard.errors import InputError, UnsupportedError

_NO_NUMBERS = "OSUMm"
"""Kinds of numpy arrays that JAX has none of: objects, text, dates and times."""


def check_arrays(name: str, argument: Any) -> None:
    """`UnsupportedError` for a mutable reference in an argument, `InputError` for an array without numbers."""
    for path, leaf in tree_util.tree_flatten_with_path(argument)[0]:
        here = name + tree_util.keystr(path)
        if _is_reference(leaf):
            raise UnsupportedError(
                f"{here} is a mutable reference, which a planned program cannot take; take the value (ref[...]) as an "
                "argument and give the new one back: a donated argument is written where it lies"
            )
        if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in _NO_NUMBERS:
            raise InputError(
                f"{here} is an array of {leaf.dtype}, and a program has arrays of numbers; leave it out of the "
                "arguments, or give numbers in its place"
            )


def _is_reference(leaf: Any) -> bool:
    reference = getattr(jax, "Ref", None)
    return reference is not None and isinstance(leaf, reference)
