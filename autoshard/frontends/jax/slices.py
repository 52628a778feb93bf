"""Slices that a loop takes one after the other of an array that it closes over.

`dynamic_slice(x, 512 * i, 512)` in iteration i, for all of x, is the i-th block of x: an operand that is stacked, like
the `xs` of a scan. In parts (`autoshard.frontends.jax.parts`) a device then needs the blocks of its own part alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from autoshard.frontends.jax.facts import is_extended

_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "neg": np.negative,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "select_n": lambda which, *cases: np.choose(np.asarray(which, int), cases),
}  # fmt: skip
"""Ops on integers by which places of slices are worked out."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """An operand of which iteration i takes block i along a dimension: the operand's position, and the dimension."""

    operand: int
    dim: int

    def of(self, array: Any, length: int) -> Any:
        """The blocks of the array, stacked."""
        shape, dim = array.shape, self.dim
        split = jnp.reshape(array, (*shape[:dim], length, shape[dim] // length, *shape[dim + 1 :]))
        return jnp.moveaxis(split, dim, 0)


def with_blocks(jaxpr: Any, fixed: Sequence[int], known: Mapping[int, Any], length: int) -> tuple[Any, list[Blocks]]:
    """A body (an open jaxpr) with a further constant in place of each slice that takes blocks, and these blocks.

    fixed: operands (of the loop and of its body alike) that are the same in all iterations. known: of some operands of
    the body, their values in all iterations, in order of the stacked operands.
    """
    numbers: dict[Any, Any] = {jaxpr.invars[k]: np.asarray(values) for k, values in known.items()}
    arrays = {jaxpr.invars[k]: k for k in fixed}
    kept, taken, all_blocks = [], [], []
    for eqn in jaxpr.eqns:
        blocks = _blocks(eqn, arrays, numbers, length)
        if blocks is not None:
            all_blocks.append(blocks)
            taken.append(eqn.outvars[0])
            continue
        kept.append(eqn)
        values = _values(eqn, numbers)
        if values is not None:
            numbers[eqn.outvars[0]] = values
    if not all_blocks:
        return jaxpr, []
    return jaxpr.replace(constvars=[*jaxpr.constvars, *taken], eqns=kept), all_blocks


def _number(atom: Any, numbers: Mapping[Any, Any]) -> Any:
    """The value of an integer in each iteration; None where it is not known."""
    if not isinstance(atom, jax_core.Literal):
        return numbers.get(atom)
    value = np.asarray(atom.val)
    return value if not value.shape and value.dtype.kind in "iub" else None


def _values(eqn: Any, numbers: Mapping[Any, Any]) -> Any:
    """The result of an op on known integers; None for other ops, and where the result would not fit its type."""
    kind = str(eqn.primitive.name)
    aval = eqn.outvars[0].aval if len(eqn.outvars) == 1 else None
    if aval is None or aval.shape or is_extended(aval.dtype) or np.dtype(aval.dtype).kind not in "iub":
        return None
    numbers_in = [_number(atom, numbers) for atom in eqn.invars]
    if any(value is None for value in numbers_in):
        return None
    wide = [value.astype(np.int64) for value in numbers_in]
    if kind == "convert_element_type":
        out = wide[0]
    elif kind in _NUMBERS:
        out = np.asarray(_NUMBERS[kind](*wide))
    else:
        return None
    narrow = out.astype(eqn.outvars[0].aval.dtype)
    return narrow if (narrow.astype(np.int64) == out).all() else None


def _blocks(eqn: Any, arrays: Mapping[Any, int], numbers: Mapping[Any, Any], length: int) -> Blocks | None:
    """The blocks that a slice takes of an array, one in each iteration; None where it takes something else."""
    if str(eqn.primitive.name) != "dynamic_slice":
        return None
    array = eqn.invars[0]
    if isinstance(array, jax_core.Literal) or array not in arrays:
        return None
    shape, sizes = array.aval.shape, eqn.params["slice_sizes"]
    cut = [d for d, (size, whole) in enumerate(zip(sizes, shape, strict=True)) if size != whole]
    if len(cut) != 1 or sizes[cut[0]] * length != shape[cut[0]]:
        return None
    places = _number(eqn.invars[1 + cut[0]], numbers)
    if places is None or not np.array_equal(np.broadcast_to(places, (length,)), sizes[cut[0]] * np.arange(length)):
        return None
    return Blocks(arrays[array], cut[0])


def known_counts(first: Any, step: int, length: int, backwards: bool) -> Any:
    """A counter in each iteration, in order of the stacked operands; None where its beginning is not in the code."""
    if not isinstance(first, jax_core.Literal):
        return None
    at = np.arange(length)
    dtype = np.asarray(first.val).dtype
    values = int(first.val) + step * (at[::-1] if backwards else at)
    return values.astype(dtype) if (values.astype(dtype) == values).all() else None


def iotas(eqn: Any) -> dict[Any, Any]:
    """The numbers that an `iota` of one dimension counts, by its result; nothing for other equations."""
    if str(eqn.primitive.name) != "iota" or len(eqn.params["shape"]) != 1:
        return {}
    dtype = np.dtype(eqn.params["dtype"])
    return {eqn.outvars[0]: np.arange(eqn.params["shape"][0], dtype=dtype)} if dtype.kind in "iu" else {}
