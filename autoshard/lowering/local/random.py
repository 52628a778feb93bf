"""Random bits of one block: partitionable threefry hashes the position of each element in the whole array.

The computation is that of JAX (`jax/_src/random/threefry2x32.py`, partitionable) on the positions of a block, so the
bits are the ones that a single device would draw.
"""

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jax import lax

from autoshard.frontends.jax.function import made_in_parts
from autoshard.lowering.local.context import LocalOp, local

_WORD = np.uint32
_HALF = _WORD(16)
_LOW = _WORD(0xFFFF)


@local("random_bits")
def random_bits(ctx: LocalOp, keys: Any) -> Sequence[Any]:
    """Random bits of a block. Batches of keys are independent; along drawn dimensions a block starts at its offset."""
    lead = len(ctx.operand_types[0].shape)
    whole = ctx.result_types[0].shape
    cut = [ctx.result_atoms(0, d) for d in range(lead, len(whole))]
    if not any(cut):
        return ctx.bind([keys])
    if not made_in_parts(ctx.operand_types[0]):
        ctx.unsupported("these bits are made whole: jax_threefry_partitionable is off now, or the keys are others")
    shape = ctx.local_result(0)
    starts = [lax.convert_element_type(ctx.grid.start(n, a), _WORD) for n, a in zip(whole[lead:], cut, strict=True)]
    high, low = (_wide(x, shape) for x in positions(whole[lead:], shape[lead:], starts))
    data = jax.random.key_data(keys)
    one, other = (_over(lax.index_in_dim(data, k, lead, keepdims=False), shape) for k in (0, 1))
    first, second = _threefry().bind(one, other, high, low)
    width = ctx.params["bit_width"]
    if width == 64:
        first, second = (lax.convert_element_type(x, np.uint64) for x in (first, second))
        return [lax.shift_left(first, lax.full_like(first, 32)) | second]
    return [lax.convert_element_type(first ^ second, jnp.dtype(f"uint{width}"))]


def positions(whole: Sequence[int], block: Sequence[int], starts: Sequence[Any]) -> tuple[Any, Any]:
    """High and low words of the row-major positions of a block's elements in an array of shape `whole`.

    starts: first index of the block in each dimension. The positions are broadcast from one vector per dimension.
    """
    high, low = lax.full(block, 0, _WORD), lax.full(block, 0, _WORD)
    for d, (n, start) in enumerate(zip(block, starts, strict=True)):
        index = lax.iota(_WORD, n) + lax.broadcast(start, (n,))
        stride = prod(whole[d + 1 :])
        if prod(whole) <= 2**32:  # one word holds them all
            low = low + lax.broadcast_in_dim(index * _WORD(stride % 2**32), block, (d,))
            continue
        more, less = (lax.broadcast_in_dim(x, block, (d,)) for x in _product(index, stride))
        low = low + less
        high = high + more + lax.convert_element_type(lax.lt(low, less), _WORD)
    return high, low


def _product(index: Any, stride: int) -> tuple[Any, Any]:
    """High and low word of a word times a number of two words, from halves of words."""
    small, large = _WORD(stride % 2**32), _WORD(stride >> 32)
    i, j = index & _LOW, lax.shift_right_logical(index, lax.full_like(index, _HALF))
    a, b = _WORD(int(small) & 0xFFFF), _WORD(int(small) >> 16)
    down, cross, across = i * a, i * b, j * a
    middle = lax.shift_right_logical(down, lax.full_like(down, _HALF)) + (cross & _LOW) + (across & _LOW)
    carried = sum(lax.shift_right_logical(x, lax.full_like(x, _HALF)) for x in (middle, cross, across))
    return j * b + carried + index * large, index * small


def _wide(x: Any, shape: Sequence[int]) -> Any:
    """Positions repeated for every key of a batch: `shape` has the dimensions of the keys in front."""
    return lax.broadcast_in_dim(x, shape, range(len(shape) - x.ndim, len(shape)))


def _over(x: Any, shape: Sequence[int]) -> Any:
    """A word of each key repeated for every element that is drawn from the key."""
    return lax.broadcast_in_dim(x, shape, range(x.ndim)) if x.ndim else x


@cache
def _threefry() -> Any:
    """The primitive of the hash: JAX has public functions of it but no public primitive."""
    word = jax.ShapeDtypeStruct((), np.uint32)
    counts = jax.ShapeDtypeStruct((2,), np.uint32)
    todo = [jax.make_jaxpr(lambda a, b, c: jax.extend.random.threefry_2x32((a, b), c))(word, word, counts).jaxpr]
    while todo:
        for eqn in todo.pop().eqns:
            if str(eqn.primitive.name) == "threefry2x32":
                return eqn.primitive
            todo += [getattr(p, "jaxpr", p) for p in eqn.params.values() if hasattr(p, "eqns") or hasattr(p, "jaxpr")]
    raise AssertionError("threefry_2x32 of this version of JAX is not made of the primitive threefry2x32")
