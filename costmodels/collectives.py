"""Times of collectives on the links of one machine, as ``alpha + beta * bytes`` per level.

A group of devices is a set of `Piece`s: how many devices it spans on each physical dimension of each level, and how far
apart they are. V, the bytes, is *the whole array as seen inside one group*: what an all-gather returns, what a
reduce-scatter takes, either side of an all-reduce, n times the local shard of an all-to-all; for a shift or permute
it is the shard itself. Each function below gives the seconds per byte of V of one level:

| kind | torus dimension (w: link one way, W = 2w on a ring, w on a line) | switch (E: egress one way) | full mesh |
| --- | --- | --- | --- |
| all-gather, reduce-scatter | V (n-1)/n / (sum of W over dimensions) | V (n-1)/n / E | V / (n w) |
| all-reduce | twice that | twice that; V / E with in-network reduction | twice that |
| all-to-all | max over dimensions of V m / (4 n W), (m^2-1)/m^2 of it for odd m | V (n-1)/n^2 / E | V / (n^2 w) |
| shift to the neighbour | s / w | s / E | s / w |
| any permutation | max over dimensions of s m / (4 w), twice that on a line | s / E | s / w |

Several levels at once: gather and scatter run hierarchically, so level i carries V (n_i-1)/n_i divided by the group's
devices inside it; an all-to-all goes straight to its destination. Levels work at the same time (chunks are pipelined),
so their bandwidth times combine by max; their latencies add.

Sources: How To Scale Your Model, chapter 3 (torus), chapter 12 (switches, nodes); entries for lines, odd sizes, strides
and permutations follow by counting link loads and are checked against brute-force routing in the tests. A calibrated
profile may say that a kind takes some factor longer than its formula (`kind_factors`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from math import prod

from autoshard.costmodels.profile import Collective, FullMeshLevel, Profile, SwitchLevel, TorusLevel


class CollectiveKind(StrEnum):
    """The kinds of collectives that have a price."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    PERMUTE = "permute"  # any permutation of the group's devices (what re-ordering atoms needs)
    SHIFT = "shift"  # every device sends to its neighbour (one step of a ring algorithm, a pipeline hop)


_GATHERS = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """`size` devices on dimension `dim` of level number `level`, every `stride`-th one.

    `exact` is False where a sub-axis does not line up with the physical dimensions; it is then priced as if its
    devices were the given distance apart without wraparound.
    """

    level: int
    dim: int
    stride: int
    size: int
    exact: bool = True


def merge_pieces(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same group with neighbouring pieces joined, so that the parts of an axis make the axis again.

    >>> merge_pieces([Piece(0, 0, 4, 4), Piece(0, 0, 1, 4)])
    (Piece(level=0, dim=0, stride=1, size=16, exact=True),)
    """
    merged: list[Piece] = []
    for piece in sorted(p for p in pieces if p.size > 1):
        last = merged[-1] if merged else None
        if (
            last is not None
            and (last.level, last.dim) == (piece.level, piece.dim)
            and last.exact
            and piece.exact
            and piece.stride == last.stride * last.size
        ):
            merged[-1] = Piece(last.level, last.dim, last.stride, last.size * piece.size)
        else:
            merged.append(piece)
    return tuple(merged)


@dataclass(frozen=True, slots=True)
class LevelCost:
    """The part of one level in a collective: `latency_s`, and seconds and traffic per byte of V."""

    level: str
    group: int  # devices (or inner domains) of the group at this level
    links: str  # in words: which links it runs on
    latency_s: float
    seconds_per_byte: float
    bytes_sent_per_byte: float  # bytes that one device sends on this level, per byte of V
    dims: tuple[int, ...] = ()  # dimensions of a torus that it keeps busy
    finite: float = 1.0  # the (n-1)/n in its seconds, n the units that its links join; 1 where there is none


@dataclass(frozen=True, slots=True)
class Torus:
    """The slice a torus level forms on this machine."""

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]


def named_kind(kind: CollectiveKind) -> Collective:
    """The kind as profiles spell it."""
    return kind.value  # type: ignore[return-value]


def level_costs(
    kind: CollectiveKind, pieces: Sequence[Piece], profile: Profile, torus: Torus | None, in_network_reduction: bool
) -> tuple[LevelCost, ...]:
    """Cost of a collective over a group on each level it touches, innermost first; none for a single device."""
    merged = merge_pieces(pieces)
    groups = {level: tuple(part) for level, part in groupby(merged, key=lambda p: p.level)}
    n = prod(p.size for p in merged)
    costs: list[LevelCost] = []
    inside = 1  # devices of the group within one unit of the level at hand
    for index in sorted(groups):
        level, mine = profile.levels[index], groups[index]
        size = prod(p.size for p in mine)
        if isinstance(level, TorusLevel):
            assert torus is not None
            cost = _torus_cost(kind, level, torus, mine, size, n)
        elif isinstance(level, FullMeshLevel):
            cost = _full_mesh_cost(kind, level, size, n)
        else:
            through = _size_through(index, groups, profile)
            reduces = in_network_reduction and level.in_network_reduction and kind is CollectiveKind.ALL_REDUCE
            cost = _switch_cost(kind, level, size, through, inside, n, reduces)
        factor = level.kind_factors.get(named_kind(kind), 1.0)
        costs.append(cost if factor == 1.0 else replace(cost, seconds_per_byte=cost.seconds_per_byte * factor))
        inside *= size
    return tuple(costs)


def _size_through(index: int, groups: dict[int, tuple[Piece, ...]], profile: Profile) -> int:
    """Group size whose traffic crosses the links of level `index`: its own, and that of levels nested on its links."""
    size = prod(p.size for p in groups[index])
    for outer in range(index + 1, len(profile.levels)):
        level = profile.levels[outer]
        if not (isinstance(level, SwitchLevel) and level.crosses_inner_link):
            break
        size *= prod(p.size for p in groups.get(outer, ()))
    return size


def large_group_seconds_per_byte(costs: Sequence[LevelCost]) -> float:
    """V / W, as books round it: the level that takes longest, without the (n-1)/n of a finite group."""
    slowest = max(costs, key=lambda cost: cost.seconds_per_byte, default=None)
    return 0.0 if slowest is None else slowest.seconds_per_byte / slowest.finite


def _passes(kind: CollectiveKind) -> int:
    return 2 if kind is CollectiveKind.ALL_REDUCE else 1


def _switch_cost(
    kind: CollectiveKind, level: SwitchLevel, size: int, through: int, inside: int, n: int, reduces: bool
) -> LevelCost:
    if kind in _GATHERS:
        sent = (through - 1) / through / inside
    elif kind is CollectiveKind.ALL_REDUCE:
        sent = 1 / inside if reduces else 2 * (through - 1) / through / inside
    elif kind is CollectiveKind.ALL_TO_ALL:
        sent = (through - 1) * inside / n**2
    else:
        sent = 1.0
    passes = 1 if reduces else _passes(kind)
    links = f"{level.name}: {size} through the switch" + (", reduced in it" if reduces else "")
    finite = 1.0 if reduces else _finite(kind, through)
    latency = passes * level.latency.value
    return LevelCost(level.name, size, links, latency, sent / level.egress.value, sent, finite=finite)


def _finite(kind: CollectiveKind, units: int) -> float:
    """The (n-1)/n of gathers, scatters and all-reduces over so many units."""
    return (units - 1) / units if kind in _GATHERS or kind is CollectiveKind.ALL_REDUCE else 1.0


def _full_mesh_cost(kind: CollectiveKind, level: FullMeshLevel, size: int, n: int) -> LevelCost:
    # Each device uses size - 1 links at once, one to each peer of the group.
    if kind in (CollectiveKind.PERMUTE, CollectiveKind.SHIFT):
        sent, per_link = 1.0, 1.0
    elif kind is CollectiveKind.ALL_TO_ALL:
        sent, per_link = (size - 1) / n**2, 1 / n**2
    else:
        sent, per_link = _passes(kind) * (size - 1) / size, _passes(kind) / size
    links = f"{level.name}: {size} devices, {size - 1} direct link{'s' if size > 2 else ''} each"
    latency, per_byte = _passes(kind) * level.latency.value, per_link / level.link.value
    return LevelCost(level.name, size, links, latency, per_byte, sent, finite=_finite(kind, size))


def is_ring(piece: Piece, torus: Torus) -> bool:
    """Whether these devices close into a ring: they reach round a wrapped dimension."""
    return piece.exact and torus.wraps[piece.dim] and piece.stride * piece.size == torus.shape[piece.dim]


def torus_bandwidth(pieces: Sequence[Piece], torus: Torus, link_bytes_per_s: float) -> float:
    """Bytes/s at which one device gathers over these pieces: 2w for each ring, w for each line, summed.

    Devices a stride apart share their links with stride - 1 other groups. Several pieces on one dimension (with a gap
    between them) take turns, the outer first.
    """
    total = 0.0
    for _, on_dim in groupby(pieces, key=lambda p: p.dim):
        inside, seconds = 1, 0.0
        for piece in on_dim:  # ascending stride
            rate = link_bytes_per_s * (2 if is_ring(piece, torus) else 1) / piece.stride
            seconds += (piece.size - 1) / piece.size / inside / rate
            inside *= piece.size
        total += (inside - 1) / inside / seconds
    return total


def _torus_cost(
    kind: CollectiveKind, level: TorusLevel, torus: Torus, pieces: tuple[Piece, ...], size: int, n: int
) -> LevelCost:
    w = level.link.value
    if kind is CollectiveKind.REDUCE_SCATTER and runs_as_all_reduce(level, torus, pieces):
        kind = CollectiveKind.ALL_REDUCE
    hops = sum(p.stride * (p.size // 2 if is_ring(p, torus) else p.size - 1) for p in pieces)
    if kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE):
        sent = _passes(kind) * (size - 1) / size
        per_byte = sent / torus_bandwidth(pieces, torus, w)
        hops *= _passes(kind)
    elif kind is CollectiveKind.ALL_TO_ALL:
        sent = (size - 1) / n**2
        per_byte = _per_dim_max(pieces, torus, lambda p: _all_to_all_load(p, torus, size) / n**2 / w)
    elif kind is CollectiveKind.PERMUTE:
        sent = 1.0
        per_byte = _per_dim_max(pieces, torus, lambda p: _permute_load(p, torus) / w)
    else:
        sent = 1.0
        stride = max(p.stride for p in pieces)
        per_byte, hops = stride / w, stride
    words = ", ".join(_piece_words(p, torus) for p in pieces)
    dims = tuple(sorted({p.dim for p in pieces}))
    latency = hops * level.latency.value
    return LevelCost(level.name, size, f"{level.name}: {words}", latency, per_byte, sent, dims, _finite(kind, size))


def runs_as_all_reduce(level: TorusLevel, torus: Torus, pieces: Sequence[Piece]) -> bool:
    """Whether the compiler runs a reduce-scatter over these chips as an all-reduce, twice the bytes.

    Compiled ahead of time (libtpu 0.0.42.1): over a whole slice of three dimensions (2x2x2, 2x2x4, 4x4x4) and over a
    whole square one (4x4, 8x8, 16x16); not over 2x2, 2x4 and 4x8, nor over a part of a slice, such as one dimension.
    """
    if level.whole_slice_reduce_scatter != "all_reduce":
        return False
    shape = [n for n in torus.shape if n > 1]
    whole = len(pieces) == len(shape) > 1 and all(p.exact and p.size == torus.shape[p.dim] for p in pieces)
    return whole and (len(shape) > 2 or (len(set(shape)) == 1 and shape[0] > 2))


def _per_dim_max(pieces, torus, seconds) -> float:
    return max(sum(seconds(p) for p in on_dim) for _, on_dim in groupby(pieces, key=lambda p: p.dim))


def _all_to_all_load(piece: Piece, torus: Torus, size: int) -> float:
    """Chunks (of V/n^2 bytes) that cross the busiest link of this dimension.

    A device sends size/m chunks to each of the m coordinates of the dimension; on a line the middle link carries
    m/2 * m/2 of these each way, on a ring half of that.
    """
    m = piece.size
    odd = (m * m - 1) / (m * m) if m % 2 else 1.0
    per_coordinate = size / m
    return per_coordinate * m * m / (8 if is_ring(piece, torus) else 4) * odd * piece.stride


def _permute_load(piece: Piece, torus: Torus) -> float:
    """Shards that cross the busiest link under the worst permutation routed well: half-way round, or a reversal."""
    m = piece.size
    return max(1.0, m / 4 if is_ring(piece, torus) else m / 2) * piece.stride


def _piece_words(piece: Piece, torus: Torus) -> str:
    shape = "ring" if is_ring(piece, torus) else "line"
    far = "" if piece.stride == 1 else f" every {piece.stride}"
    return f"dimension {piece.dim} ({shape} of {piece.size}{far})"
