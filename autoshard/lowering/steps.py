"""Steps of a reshard as JAX operations on local blocks: one collective for each collective step.

All functions run inside a `shard_map` over the refined mesh. An atom is the mesh axis of its name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import jax
import numpy as np
from jax import lax

from autoshard.errors import UnsupportedError
from autoshard.lowering.blocks import is_regular
from autoshard.lowering.collectives import sent_as
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.rows import staged
from autoshard.sharding.steps import Reshard, Step, StepKind

_TWO_BITS = tuple(np.dtype(t) for t in (jax.numpy.int2, jax.numpy.uint2))
"""Moved as bytes: XLA's collectives on CPUs write past the end of arrays of such types."""


@dataclass(frozen=True)
class Grid:
    """The refined mesh seen from one device: its coordinates and its blocks.

    platform: where the program will run; None where that is not known.
    """

    mesh: AtomMesh
    platform: str | None = None

    def names(self, atoms: Sequence[int]) -> tuple[str, ...]:
        """Names of these atoms as axes of the refined mesh."""
        return tuple(self.mesh.names[a] for a in atoms)

    def sizes(self, atoms: Sequence[int]) -> tuple[int, ...]:
        """Number of devices along each of these atoms."""
        return tuple(self.mesh.sizes[a] for a in atoms)

    def index(self, atoms: Sequence[int]) -> jax.Array:
        """This device's number in the group of `atoms`, row-major, int32."""
        return lax.axis_index(self.names(atoms)) if atoms else lax.full((), 0, np.int32)

    def start(self, n: int, atoms: Sequence[int]) -> jax.Array:
        """First element of this device's block of a dimension of n elements, int32; may exceed n."""
        start = lax.full((), 0, np.int32)
        for atom, length in zip(atoms, staged(n, self.sizes(atoms))[1:], strict=True):
            start = start + self.index((atom,)) * np.int32(length)
        return start

    def count(self, n: int, atoms: Sequence[int]) -> jax.Array:
        """Number of elements in this device's block of a dimension of n elements, int32."""
        count = lax.full((), n, np.int32)
        for atom, length in zip(atoms, staged(n, self.sizes(atoms))[1:], strict=True):
            count = lax.clamp(np.int32(0), count - self.index((atom,)) * np.int32(length), np.int32(length))
        return count

    def is_first(self, atoms: Sequence[int]) -> jax.Array:
        """Whether this device is number 0 of the group of `atoms`."""
        return lax.eq(self.index(atoms), np.int32(0))


def run_reshard(x: jax.Array, reshard: Reshard, shape: Sequence[int], grid: Grid) -> jax.Array:
    """Apply the steps of a reshard to a local block of a tensor of `shape`."""
    layout = reshard.source
    for step in reshard.steps:
        x = run_step(x, step, layout, shape, grid)
        layout = step.apply(layout)
    return x


def run_step(x: jax.Array, step: Step, layout: Layout, shape: Sequence[int], grid: Grid) -> jax.Array:
    """One step on a local block of a tensor of `shape` in `layout`."""
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended):  # PRNG keys move as their integers
        data = run_step(jax.random.key_data(x), step, layout, shape, grid)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    if x.dtype in _TWO_BITS:
        return run_step(x.astype(np.int8), step, layout, shape, grid).astype(x.dtype)
    names, sizes = grid.names(step.atoms), grid.sizes(step.atoms)
    match step.kind:
        case StepKind.SLICE:
            return _slice(x, step.dim, step.atoms, grid)
        case StepKind.MASK:
            return keep_where(grid.is_first(step.atoms), x)
        case StepKind.ALL_REDUCE:
            return lax.psum(x, names)
        case StepKind.ALL_GATHER:
            length = _length(layout, step.dim, len(step.atoms), shape, grid)
            return _join(lax.all_gather(x, names, axis=step.dim, tiled=True), step.dim, length, sizes)
        case StepKind.REDUCE_SCATTER:
            return lax.psum_scatter(_part(x, step.dim, sizes), names, scatter_dimension=step.dim, tiled=True)
        case StepKind.ALL_TO_ALL:
            length = _length(layout, step.dim, len(step.atoms), shape, grid)
            x = lax.all_to_all(_part(x, step.to_dim, sizes), names, step.to_dim, step.dim, tiled=True)
            return _join(x, step.dim, length, sizes)
        case StepKind.PERMUTE:
            return _permute(x, step, layout, shape, grid)


def permute_all(x: jax.Array, moves: Sequence[int], grid: Grid) -> jax.Array:
    """Move the block at each position of the mesh (row-major) to the device at ``moves[position]``."""
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.extended):
        data = permute_all(jax.random.key_data(x), moves, grid)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    if x.dtype in _TWO_BITS:
        return permute_all(x.astype(np.int8), moves, grid).astype(x.dtype)
    return lax.ppermute(x, grid.names(range(len(grid.mesh.sizes))), list(enumerate(moves)))


def inverse(moves: Sequence[int]) -> tuple[int, ...]:
    """The moves that undo `permute_all` with these."""
    return tuple(source for _, source in sorted((target, source) for source, target in enumerate(moves)))


def keep_where(condition: jax.Array, x: jax.Array) -> jax.Array:
    """x where the scalar or same-shaped condition holds, zeros elsewhere (also for NaN and infinities)."""
    return lax.select(
        lax.broadcast(condition, x.shape) if condition.ndim < x.ndim else condition, x, lax.full_like(x, 0)
    )


def all_reduce(x: jax.Array, combiner: str, atoms: Sequence[int], grid: Grid) -> jax.Array:
    """The all-reduce inside an op whose partial results are combined by 'max' or 'min'.

    Collectives on CPUs drop NaN, which the op on one device keeps, and those of NCCL do not promise it: numbers go as
    integers in the same order (`sent_as`).
    """
    reduce: Callable[..., jax.Array] = {"max": lax.pmax, "min": lax.pmin}[combiner]
    word = sent_as(str(x.dtype), grid.platform)
    if word == str(x.dtype):
        return reduce(x, grid.names(atoms))
    limits = jax.numpy.iinfo(word)
    no_number = lax.full_like(x, limits.max if combiner == "max" else limits.min, dtype=word)
    keys = _turned(lax.bitcast_convert_type(x, word))
    keys = reduce(lax.select(lax.ne(x, x), no_number, keys), grid.names(atoms))
    return lax.bitcast_convert_type(_turned(keys), x.dtype)


def _turned(bits: jax.Array) -> jax.Array:
    """Bits of floats as integers in the order of the floats, and back: those below zero are counted the other way."""
    most = lax.full_like(bits, jax.numpy.iinfo(bits.dtype).max)
    return lax.select(lax.lt(bits, lax.full_like(bits, 0)), lax.bitwise_xor(bits, most), bits)


def permute_pairs(old: Sequence[int], new: Sequence[int], mesh: AtomMesh) -> list[tuple[int, int]]:
    """(source, destination) numbers of devices within a group, row-major in mesh order; a device may send to itself.

    The device that holds block k under the order `old` sends it to the device that holds block k under `new`. Numbers
    are in mesh order because `lax.ppermute` numbers a group so, whatever the order of the names given to it.
    """
    ordered = sorted(new)
    sizes = [mesh.sizes[a] for a in ordered]

    def holder(block: int, order: Sequence[int]) -> int:
        where = dict(zip(order, np.unravel_index(block, [mesh.sizes[a] for a in order]), strict=True))
        return int(np.ravel_multi_index([int(where[a]) for a in ordered], sizes))

    return [(holder(block, old), holder(block, new)) for block in range(prod(sizes))]


def exchange(x: jax.Array, dim: int, atoms: Sequence[int], width: int, shift: int, grid: Grid) -> jax.Array:
    """The neighbour's edge along a dimension; zeros where there is no neighbour.

    With shift 1 these are the last `width` elements of the block before, with shift -1 the first of the block after.
    """
    n, ordered = x.shape[dim], sorted(atoms)
    edge = lax.slice_in_dim(x, n - width, n, axis=dim) if shift == 1 else lax.slice_in_dim(x, 0, width, axis=dim)
    sizes = [grid.mesh.sizes[a] for a in atoms]

    def number(block: int) -> int:  # of the device that holds it, in mesh order (see `permute_pairs`)
        where = dict(zip(atoms, np.unravel_index(block, sizes), strict=True))
        return int(np.ravel_multi_index([int(where[a]) for a in ordered], [grid.mesh.sizes[a] for a in ordered]))

    blocks = range(prod(sizes))
    pairs = [(number(b), number(b + shift)) for b in blocks if b + shift in blocks]
    return lax.ppermute(edge, grid.names(ordered), pairs)


def _length(layout: Layout, dim: int, leaving: int, shape: Sequence[int], grid: Grid) -> int:
    """Local length of `dim` without the last `leaving` of its atoms."""
    atoms = layout.dims[dim]
    return -(-shape[dim] // grid.mesh.size(atoms[: len(atoms) - leaving]))


def pad_to(x: jax.Array, dim: int, length: int) -> jax.Array:
    """The array with zeros at the end of a dimension, up to `length`."""
    if x.shape[dim] >= length:
        return x
    config = [(0, length - n if d == dim else 0, 0) for d, n in enumerate(x.shape)]
    return lax.pad(x, lax.full((), 0, x.dtype), config)


def _slice(x: jax.Array, dim: int, atoms: Sequence[int], grid: Grid) -> jax.Array:
    n, sizes = x.shape[dim], grid.sizes(atoms)
    lengths = staged(n, sizes)[1:]
    length, start = lengths[-1], grid.start(n, atoms)
    last_start = sum((size - 1) * step for size, step in zip(sizes, lengths, strict=True))
    if last_start + length <= n:
        return lax.dynamic_slice_in_dim(x, start, length, dim)
    # Blocks at the end are filled with zeros. A filled copy of the whole array would take the memory of another one, so
    # a full block is cut out, and what it has before the start is cut off.
    within = lax.min(start, np.int32(n - length))
    block = pad_to(lax.dynamic_slice_in_dim(x, within, length, dim), dim, 2 * length)
    return lax.dynamic_slice_in_dim(block, lax.min(start - within, np.int32(length)), length, dim)


def _part(x: jax.Array, dim: int, sizes: Sequence[int]) -> jax.Array:
    """Cut a dimension into the blocks of all devices, one after the other; every stage is padded to a multiple."""
    shape, n = x.shape, x.shape[dim]
    lengths = staged(n, sizes)
    if is_regular(n, sizes):
        return pad_to(x, dim, prod(sizes) * lengths[-1])
    for k, size in enumerate(sizes):  # [..., s1 .. sk, lengths[k], ...] -> [..., s1 .. s(k+1), lengths[k + 1], ...]
        x = lax.reshape(x, (*shape[:dim], prod(sizes[:k]), lengths[k], *shape[dim + 1 :]))
        x = pad_to(x, dim + 1, size * lengths[k + 1])
    return lax.reshape(x, (*shape[:dim], prod(sizes) * lengths[-1], *shape[dim + 1 :]))


def _join(x: jax.Array, dim: int, n: int, sizes: Sequence[int]) -> jax.Array:
    """The inverse of `_part`: the n elements from the blocks of all devices."""
    shape, lengths = x.shape, staged(n, sizes)
    if is_regular(n, sizes):
        return lax.slice_in_dim(x, 0, n, axis=dim) if shape[dim] != n else x
    for k in reversed(range(len(sizes))):
        x = lax.reshape(x, (*shape[:dim], prod(sizes[:k]), sizes[k] * lengths[k + 1], *shape[dim + 1 :]))
        x = lax.slice_in_dim(x, 0, lengths[k], axis=dim + 1)
    return lax.reshape(x, (*shape[:dim], n, *shape[dim + 1 :]))


def _permute(x: jax.Array, step: Step, layout: Layout, shape: Sequence[int], grid: Grid) -> jax.Array:
    old, new, n = layout.dims[step.dim], step.atoms, shape[step.dim]
    if not (is_regular(n, grid.sizes(old)) and is_regular(n, grid.sizes(new))):
        raise UnsupportedError(
            f"cannot permute dimension {step.dim} of size {n} from {{{grid.mesh.axes_text(old)}}} to "
            f"{{{grid.mesh.axes_text(new)}}}: its blocks are uneven and differ between the two orders; "
            "gather and slice it instead"
        )
    return lax.ppermute(x, grid.names(sorted(new)), permute_pairs(old, new, grid.mesh))
