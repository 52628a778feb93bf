"""The communication that a sharded matmul needs: ``'B_x E @ E M -> B_x M'`` (S3.1).

A letter is a dimension, a subscript the mesh axes that cut it (``B_x``, ``B_{x,y}``, ``B_xy``). The answer follows
the four cases of How To Scale Your Model, chapter 3, found by enumeration. Each axis cuts one dimension of the local
work or none. Operands are gathered, sliced (free) or exchanged to match. An axis on a contracted dimension leaves
partial sums, which are reduced (all-reduce) or reduced and scattered, unless the result may stay partial:
``B E (partial)`` or ``B E {U_x}``. The *needed* collectives are those of the way with the fewest; with equal numbers,
gathering an operand is preferred to reducing a result. Where another way is quicker, the answer has it too.
"""

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.machine import CollectiveTime, Machine, tile_efficiency

_DIM = re.compile(r"^(?P<name>[A-Za-z][A-Za-z0-9]*)(?:_(?:\{(?P<braces>[^}]*)\}|(?P<plain>[A-Za-z0-9,]+)))?$")
_PARTIAL = re.compile(r"\((?:partial|unreduced)\)")
_UNREDUCED = re.compile(r"\\?\{\s*U[_.]?\{?([A-Za-z0-9,]+)\}?\s*\\?\}")  # the book's {U_X}
_ALL = frozenset({"*"})  # partial over every axis that cuts a contracted dimension of both inputs
_MAX_AXES = 6  # the enumeration is exponential in the axes used; meshes in questions are small


@dataclass(frozen=True, slots=True)
class Operand:
    """Dimensions of a matrix and the mesh axes that cut each."""

    dims: tuple[str, ...]
    axes: tuple[tuple[str, ...], ...]
    partial: frozenset[str] = frozenset()  # of a result: axes over which it may stay unreduced

    def of(self, dim: str) -> tuple[str, ...]:
        """The mesh axes that cut a dimension; none where the operand does not have the dimension."""
        return self.axes[self.dims.index(dim)] if dim in self.dims else ()

    @property
    def used(self) -> frozenset[str]:
        """All mesh axes that cut the operand."""
        return frozenset(axis for axes in self.axes for axis in axes)

    def __str__(self) -> str:
        words = [d + (f"_{{{','.join(a)}}}" if a else "") for d, a in zip(self.dims, self.axes, strict=True)]
        return " ".join([*words, *(f"{{U_{axis}}}" for axis in sorted(self.partial))])


def parse_matmul(text: str, axes: Mapping[str, int]) -> tuple[Operand, Operand, Operand]:
    """Read ``'B_x E @ E M -> B_x M'``; ``*`` for ``@``, ``=`` for ``->`` and ``A[I_X, J]`` are read too.

    >>> [str(operand) for operand in parse_matmul("B_x E @ E M -> B_x M", {"x": 8})]
    ['B_{x} E', 'E M', 'B_{x} M']
    """
    plain = re.sub(r"[A-Za-z][A-Za-z0-9]*\[([^\]]*)\]", lambda m: re.sub(r",\s", " ", m[1] + " "), text)
    sides = re.split(r"->|=", plain)
    inputs = re.split(r"[@*]", sides[0])
    if len(sides) != 2 or len(inputs) != 2:
        raise ProfileError(f"cannot read matmul {text!r}; write 'B_x E @ E M -> B_x M'")
    left, right, out = (_parse_operand(part, axes, text) for part in (*inputs, sides[1]))
    if left.partial or right.partial:
        raise ProfileError(f"matmul {text!r}: an input that is partial sums has to be reduced first")
    if _ALL & out.partial:
        both = [
            set(left.of(dim)) & set(right.of(dim)) for dim in left.dims if dim in right.dims and dim not in out.dims
        ]
        out = Operand(out.dims, out.axes, (out.partial - _ALL) | frozenset().union(*both))
    if clash := out.partial & out.used:
        raise ProfileError(f"matmul {text!r}: the result is cut by {sorted(clash)} and partial over it")
    for dim in out.dims:
        if dim not in left.dims and dim not in right.dims:
            raise ProfileError(f"matmul {text!r}: dimension {dim} of the result is in neither input")
    for dim in {*left.dims, *right.dims} - set(out.dims):
        if dim not in left.dims or dim not in right.dims:
            raise ProfileError(f"matmul {text!r}: dimension {dim} is in one input only and not in the result")
    return left, right, out


def _parse_operand(text: str, axes: Mapping[str, int], whole: str) -> Operand:
    dims, cut = [], []
    partial: set[str] = set(_ALL) if _PARTIAL.search(text) else set()
    for found in _UNREDUCED.finditer(text):
        partial |= set(_subscript(found[1], axes, whole))
    for token in _UNREDUCED.sub(" ", _PARTIAL.sub(" ", text)).split():
        match = _DIM.match(token)
        if match is None:
            raise ProfileError(f"matmul {whole!r}: cannot read dimension {token!r}; write E, E_x or E_{{x,y}}")
        dims.append(match["name"])
        cut.append(_subscript(match["braces"] or match["plain"] or "", axes, whole))
    operand = Operand(tuple(dims), tuple(cut), frozenset(partial))
    if len(set(dims)) != len(dims) or sum(map(len, cut)) != len(operand.used):
        raise ProfileError(f"matmul {whole!r}: {text.strip()!r} uses a dimension or a mesh axis twice")
    return operand


def _subscript(text: str, axes: Mapping[str, int], whole: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    found: list[str] = []
    for name in names:
        by_case = {axis.lower(): axis for axis in axes}
        if name in axes or name.lower() in by_case:
            found.append(name if name in axes else by_case[name.lower()])
        elif all(c.lower() in by_case for c in name):  # the book's I_{XY}
            found += [by_case[c.lower()] for c in name]
        else:
            raise ProfileError(f"matmul {whole!r}: the mesh has no axis {name!r}; its axes are {dict(axes)}")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class MatmulCollective:
    """A collective that a sharded matmul needs."""

    tensor: str  # "left", "right" or "result"
    axes: tuple[str, ...]
    time: CollectiveTime
    flops_per_byte: float  # work of one device over the bytes V of the collective
    machine_flops_per_byte: float  # the ratio at which both take equally long

    @property
    def is_compute_bound(self) -> bool:
        """Whether the work takes longer than this collective."""
        return self.flops_per_byte > self.machine_flops_per_byte


@dataclass(frozen=True, slots=True)
class MatmulWay:
    """One way to compute a sharded matmul: how the local work is cut, and what is communicated."""

    local: dict[str, tuple[str, ...]]  # dimension -> mesh axes in the local matmul
    collectives: tuple[MatmulCollective, ...]
    flops_per_device: float  # of the device with the largest shards
    even_flops_per_device: float  # the same with dimensions cut evenly, which ratios and flips take
    memory_bytes_per_device: float
    memory_parts: tuple[float, float, float]  # the same by tensor: left, right and result
    compute_s: float  # roofline of the local matmul
    communication_s: float  # lower figure, the sum over collectives

    @property
    def least_s(self) -> float:
        """Lower bound: work and communication overlap completely."""
        return max(self.compute_s, self.communication_s)

    @property
    def most_s(self) -> float:
        """Upper bound: nothing overlaps, latency and bandwidth of a collective neither."""
        return self.compute_s + sum(c.time.seconds for c in self.collectives)


def price_ways(
    machine: Machine,
    operands: tuple[Operand, Operand, Operand],
    dims: Mapping[str, float],
    dtype: str,
    widths: tuple[float, float, float],
    pad_tiles: bool = False,
) -> list[MatmulWay]:
    """All ways, the needed one first: by number of collectives, exchanges, reductions of a result, then seconds.

    `widths`: bytes of an element of left, right and result.
    """
    left, right, out = operands
    names = tuple(dict.fromkeys(left.dims + right.dims))
    if missing := [d for d in names if d not in dims]:
        raise ProfileError(f"give the sizes of dimensions {missing}")
    used = sorted(left.used | right.used | out.used)
    if len(used) > _MAX_AXES:
        raise ProfileError(f"{len(used)} mesh axes in one matmul; at most {_MAX_AXES} are tried")
    ways: list[tuple[tuple[float, ...], MatmulWay]] = []
    for choice in product((None, *names), repeat=len(used)):
        local = {d: tuple(a for a, c in zip(used, choice, strict=True) if c == d) for d in names}
        way = _price(machine, operands, local, dims, dtype, widths, pad_tiles)
        exchanges = sum(c.time.kind == "all_to_all" for c in way.collectives)
        reductions = sum(c.tensor == "result" for c in way.collectives)
        ways.append(((len(way.collectives), exchanges, reductions, way.most_s), way))
    ways.sort(key=lambda item: item[0])
    return [way for _, way in ways]


def _price(
    machine: Machine,
    operands: tuple[Operand, Operand, Operand],
    local: dict[str, tuple[str, ...]],
    dims: Mapping[str, float],
    dtype: str,
    widths: tuple[float, float, float],
    pad_tiles: bool,
) -> MatmulWay:
    where = {axis: dim for dim, axes in local.items() for axis in axes}  # the dimension an axis cuts in the local work
    full = tuple(prod(dims[d] for d in o.dims) * width for o, width in zip(operands, widths, strict=True))

    def shards(axes: Iterable[str]) -> int:
        return prod(machine.axis_size(axis) for axis in set(axes))

    sizes = [_largest_shard(dims[d], shards(local[d])) for d in local]
    flops, even = 2.0 * prod(sizes), 2.0 * prod(dims[d] for d in local) / shards(where)
    peak = machine.flops_per_s(dtype)
    collectives = []
    for tensor, kind, axes, cuts in _moves(operands, where):
        bytes_ = full[_TENSORS.index(tensor)] / shards(cuts)
        parts = machine.whole(*axes)
        machine_ratio = peak * machine.alpha_beta(kind, parts)[1]
        time = machine.collective(kind, bytes_, parts)
        collectives.append(MatmulCollective(tensor, axes, time, even / bytes_, machine_ratio))
    left, right, out = (
        size / shards(a for a, d in where.items() if d in o.dims) for size, o in zip(full, operands, strict=True)
    )
    efficiency = tile_efficiency(sizes, machine.profile.matmul_tile) if pad_tiles else 1.0
    compute = machine.compute_s(flops / efficiency, left + right + out, dtype)
    seconds = sum((c.time.least_s for c in collectives), start=0.0)
    return MatmulWay(local, tuple(collectives), flops, even, left + right + out, (left, right, out), compute, seconds)


_TENSORS = ("left", "right", "result")


def _moves(
    operands: tuple[Operand, Operand, Operand], where: Mapping[str, str]
) -> list[tuple[str, str, tuple[str, ...], AbstractSet[str]]]:
    """The collectives that a way needs: tensor, kind, axes, and the axes that cut the array as one group sees it.

    `where`: the dimension that an axis cuts in the local work.
    """
    left, right, out = operands
    moves: list[tuple[str, str, list[str], AbstractSet[str]]] = []
    for name, operand in (("left", left), ("right", right)):
        wanted = {axis for axis, dim in where.items() if dim in operand.dims}
        exchanged = [a for a in sorted(operand.used & wanted) if a not in operand.of(where[a])]
        gathered = sorted(operand.used - wanted)
        held = operand.used | wanted  # axes that the operand lacks are sliced first, which is free
        if exchanged:
            moves.append((name, "all_to_all", exchanged, held - set(exchanged)))
        if gathered:
            moves.append((name, "all_gather", gathered, held - set(gathered)))
    partial = {axis for axis, dim in where.items() if dim not in out.dims}
    held = {axis for axis, dim in where.items() if dim in out.dims} | (out.used - set(where))
    scattered, reduced = sorted(partial & out.used), sorted(partial - out.used - out.partial)
    if scattered:
        moves.append(("result", "reduce_scatter", scattered, set(held)))
        held |= set(scattered)
    if reduced:
        moves.append(("result", "all_reduce", reduced, set(held)))
    exchanged = [a for a in sorted(held & out.used & set(where)) if a not in partial and a not in out.of(where[a])]
    gathered = sorted(held - out.used)
    if exchanged:
        moves.append(("result", "all_to_all", exchanged, held - set(exchanged)))
    if gathered:
        moves.append(("result", "all_gather", gathered, held - set(gathered)))
    return [(tensor, kind, tuple(axes), cuts) for tensor, kind, axes, cuts in moves]


def _largest_shard(size: float, shards: int) -> float:
    """Size of the largest shard; a size that is no whole number is an estimate, and is cut evenly."""
    return float(ceil(size / shards)) if size == int(size) else size / shards


def flip_sizes(
    way: MatmulWay,
    operands: tuple[Operand, Operand, Operand],
    dims: Mapping[str, float],
    flops_per_s: float,
    large_group: bool = False,
) -> dict[str, float | None]:
    """Per dimension, the size above which the work takes longer than the communication, with the other sizes unchanged.

    None where no size changes the verdict (work and communication grow alike). With `large_group`, gathers and
    reductions take V / W, without the (n-1)/n.
    """
    by_name: dict[str, Operand] = {}
    by_name.update(zip(("left", "right", "result"), operands, strict=True))

    def seconds(item: MatmulCollective) -> float:
        return item.time.large_group_s if large_group else item.time.bandwidth_s

    sizes: dict[str, float | None] = {}
    for dim, size in dims.items():
        work = way.even_flops_per_device / flops_per_s
        grows = sum(seconds(c) for c in way.collectives if dim in by_name[c.tensor].dims)
        stays = sum(seconds(c) for c in way.collectives if dim not in by_name[c.tensor].dims)
        sizes[dim] = _overtakes(size, work, grows, stays)
    return sizes


def memory_flip_sizes(
    way: MatmulWay,
    operands: tuple[Operand, Operand, Operand],
    dims: Mapping[str, float],
    flops_per_s: float,
    bytes_per_s: float,
) -> dict[str, float | None]:
    """Per dimension, the size above which the work takes longer than the memory traffic of operands and result."""
    sizes: dict[str, float | None] = {}
    for dim, size in dims.items():
        work = way.even_flops_per_device / flops_per_s
        traffic = [(bytes_ / bytes_per_s, dim in o.dims) for bytes_, o in zip(way.memory_parts, operands, strict=True)]
        grows, stays = sum(s for s, with_it in traffic if with_it), sum(s for s, with_it in traffic if not with_it)
        sizes[dim] = _overtakes(size, work, grows, stays)
    return sizes


def _overtakes(size: float, work: float, grows: float, stays: float) -> float | None:
    """The size at which the work, which grows with the size, equals the growing and constant traffic; None if it
    never does.
    """
    return stays * size / (work - grows) if stays and work > grows else None
