"""The cheapest sequence of steps between any two layouts of one tensor type, found by search.

The layouts in use and the way-points between them form a graph whose edges are single steps (one
collective or one local cut). All-pairs shortest paths over it price every reshard; the path itself
is what the lowering runs.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, shortest_path

from autoshard.costs.critical import Role
from autoshard.costs.exposure import Exposure
from autoshard.costs.pricing import StepPrices, given_bytes, step_bytes
from autoshard.costs.tiles import scatters_tiles
from autoshard.costs.travel import PLAIN, Travel
from autoshard.costs.waypoints import MAX_AXES_IN_ANY_ORDER, beginnings, waypoints
from autoshard.program.types import TensorType, dtype_bytes
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Reshard, Step, StepKind

_MAX_PERMUTED_ATOMS = 4
"""Longer lists of atoms are not permuted, or scattered in another order, in one step."""

MANY_LAYOUTS = 400
"""Tables of more layouts than this are worth compiled code."""


def _free_runs(mesh: AtomMesh, used: set[int], apart: Sequence[tuple[int, ...]]) -> Iterable[tuple[int, ...]]:
    """Groups of unused atoms that one step takes: parts of one axis, or whole axes (up to three in any order), where
    those in `apart` are axes too."""
    for axis in mesh.atoms_of.values():
        for first in range(len(axis)):
            for last in range(first + 1, len(axis) + 1):
                if used.isdisjoint(axis[first:last]):
                    yield axis[first:last]
    for units in dict.fromkeys((mesh.units(), mesh.units(apart))):
        free = [unit for unit in units if used.isdisjoint(unit) and mesh.size(unit) > 1]
        for count in range(2, len(free) + 1):
            for chosen in combinations(free, count):
                for order in permutations(chosen) if len(units) <= MAX_AXES_IN_ANY_ORDER else (chosen,):
                    yield tuple(a for unit in order for a in unit)


_Dims = tuple[tuple[int, ...], ...]
_Way = tuple[StepKind, tuple[int, ...], int, int, _Dims, tuple[int, ...]]
"""The fields of a step, and the dimensions and partial sums of the layout that it leads to."""


def _ways_from(
    layout: Layout, mesh: AtomMesh, maskable: frozenset[int], apart: Sequence[tuple[int, ...]]
) -> Iterable[_Way]:
    """All single steps that may lead on from `layout`; the caller keeps those that end in its graph.

    Unused atoms are sliced or masked one run of an axis at a time, since a split axis mostly moves as a whole, or
    several whole axes at once: one copy instead of one per axis. (Steps of large graphs are many: no objects are made
    of those that end nowhere.)
    """
    dims, unreduced = layout.dims, layout.unreduced
    rank = len(dims)

    def changed(dim: int, atoms: tuple[int, ...]) -> _Dims:
        return (*dims[:dim], atoms, *dims[dim + 1 :])

    for run in _free_runs(mesh, {a for d in dims for a in d} | set(unreduced), apart):
        for dim in range(rank):
            yield StepKind.SLICE, run, dim, -1, changed(dim, dims[dim] + run), unreduced
        if run == tuple(sorted(run)) and maskable.issuperset(run):
            yield StepKind.MASK, run, -1, -1, dims, tuple(sorted(unreduced + run))
    for dim, present in enumerate(dims):
        for length in range(1, len(present) + 1):
            rest, tail = present[:-length], present[-length:]
            gathered = changed(dim, rest)
            yield StepKind.ALL_GATHER, tail, dim, -1, gathered, unreduced
            for to_dim in range(rank):
                if to_dim != dim:
                    there = (*gathered[:to_dim], gathered[to_dim] + tail, *gathered[to_dim + 1 :])
                    yield StepKind.ALL_TO_ALL, tail, dim, to_dim, there, unreduced
        if 1 < len(present) <= _MAX_PERMUTED_ATOMS:
            for order in permutations(present):
                if order != present:
                    yield StepKind.PERMUTE, order, dim, -1, changed(dim, order), unreduced
    for length in range(1, len(unreduced) + 1):
        for subset in combinations(unreduced, length):
            left = tuple(a for a in unreduced if a not in subset)
            yield StepKind.ALL_REDUCE, subset, -1, -1, dims, left
            for order in permutations(subset) if length <= _MAX_PERMUTED_ATOMS else (subset,):
                for dim in range(rank):
                    yield StepKind.REDUCE_SCATTER, order, dim, -1, changed(dim, dims[dim] + order), left


@dataclass(frozen=True)
class _Graph:
    """Steps between the layouts of one list: of each its ends and its number among the different ones."""

    sources: np.ndarray
    targets: np.ndarray
    numbers: np.ndarray
    steps: tuple[Step, ...]


AllLengths = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Lengths of all shortest paths of a graph (see `formulation.shortest`)."""


class Lengths:
    """Lengths of the cheapest ways between layouts, in seconds. graph: seconds of single steps."""

    def __init__(self, graph: csr_matrix, all_lengths: AllLengths | None) -> None:
        self.graph = graph
        self._compiled = all_lengths if len(graph.indptr) > MANY_LAYOUTS + 1 else None
        self._seconds: np.ndarray | None = None
        self._before: np.ndarray | None = None
        self._before_of: dict[int, np.ndarray] = {}

    @property
    def seconds(self) -> np.ndarray:
        """[source, target] seconds, infinite where no steps lead; made when first asked for."""
        seconds, graph = self._seconds, self.graph
        if seconds is None:
            if self._compiled is not None:
                starts, targets = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
                seconds = self._compiled(starts, targets, graph.data)
            else:
                seconds, self._before = shortest_path(graph, method="D", directed=True, return_predecessors=True)
            self._seconds = seconds
        return seconds

    def forget(self) -> None:
        """Give the memory of a large table back; it is made again when it is asked for."""
        if self._compiled is not None:
            self._seconds = None

    @property
    def predecessors(self) -> np.ndarray:
        """[source, layout] the layout before it on the way from the source, negative where there is none."""
        before = self._before
        if before is None:
            before = self._before = self._predecessors(None)
        return before

    def before(self, source: int) -> np.ndarray:
        """The row of `predecessors` of one source: few of the ways of a large table are ever gone."""
        if self._before is not None:
            return self._before[source]
        if source not in self._before_of:
            self._before_of[source] = self._predecessors(source)
        return self._before_of[source]

    def _predecessors(self, source: int | None) -> np.ndarray:
        return shortest_path(self.graph, method="D", directed=True, indices=source, return_predecessors=True)[1]


@dataclass
class ReshardTable:
    """Costs in seconds and paths between the layouts of one tensor type.

    lengths: shared by types whose steps cost the same. numbers: which of `steps` each entry of its graph is.
    """

    layouts: tuple[Layout, ...]
    index: dict[Layout, int]
    lengths: Lengths
    numbers: np.ndarray
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> np.ndarray:
        """[source, target] seconds of the cheapest way."""
        return self.lengths.seconds

    @property
    def predecessors(self) -> np.ndarray:
        """[source, layout] the layout before it on the way from the source, negative where there is none."""
        return self.lengths.predecessors

    def step(self, source: int, target: int) -> Step:
        """The single step that leads from one layout to another; `KeyError` where there is none."""
        graph = self.lengths.graph
        begin, end = graph.indptr[source], graph.indptr[source + 1]
        at = begin + int(np.searchsorted(graph.indices[begin:end], target))
        if at == end or graph.indices[at] != target:
            raise KeyError((source, target))
        return self.steps[self.numbers[at]]

    def path(self, source: Layout, target: Layout) -> Reshard:
        """The cheapest reshard; `KeyError` if a layout is not in the table, `ValueError` if no sequence of steps
        leads there.
        """
        start, goal = self.index[source], self.index[target]
        steps: list[Step] = []
        while goal != start:
            before = int(self.lengths.before(start)[goal])
            if before < 0:
                raise ValueError(f"no steps lead from {source} to {target}")
            steps.append(self.step(before, goal))
            goal = before
        return Reshard(source, target, tuple(reversed(steps)))


def _nothing() -> None:
    """No check: tables are made to their end."""


@dataclass
class ReshardTables:
    """Builds and keeps one `ReshardTable` per tensor type and set of layouts.

    lengths: all shortest paths of a graph (`formulation.shortest`), for large tables. apart: parts of axes that move
    as axes of their own.
    """

    mesh: AtomMesh
    prices: StepPrices
    exposure: Exposure
    lengths: AllLengths | None = None
    apart: Sequence[tuple[int, ...]] = ()
    _between: dict[tuple[tuple[int, ...], frozenset[int]], tuple[Layout, ...]] = field(default_factory=dict)
    _complete: dict[tuple[Layout, ...], tuple[Layout, ...]] = field(default_factory=dict)
    _graphs: dict[tuple[Layout, ...], _Graph] = field(default_factory=dict)
    _tables: dict[object, ReshardTable] = field(default_factory=dict)
    _lengths: dict[object, Lengths] = field(default_factory=dict)
    _index: dict[tuple[Layout, ...], dict[Layout, int]] = field(default_factory=dict)

    def table(
        self,
        type_: TensorType,
        layouts: Iterable[Layout],
        barred: frozenset[int] = frozenset(),
        local: frozenset[int] = frozenset(),
        role: Role | None = None,
        travel: Travel = PLAIN,
        check: Callable[[], None] = _nothing,
    ) -> ReshardTable:
        """All-pairs costs over `layouts` and the way-points of `type_` between them.

        barred: atoms over which no collective may run. local: atoms that no step may move. Pairs that no sequence of
        such steps connects cost infinity. role: of the value that moves, where only a share of a step counts.
        travel: what steps carry of it.
        check: called now and then where a table is made; may raise to stop.
        """
        wanted = sorted(set(layouts), key=lambda lay: (lay.dims, lay.unreduced))
        partial = frozenset(a for lay in wanted for a in lay.unreduced)
        between = self._waypoints(type_, partial)
        known = set(between)
        nodes = (*between, *(lay for lay in wanted if lay not in known))
        nodes = self._with_ways_in(nodes, sorted(partial), check)
        key = (type_, nodes, barred, local, role, travel)
        if key not in self._tables:
            graph = self._graph(nodes, sorted(partial), check)
            self._tables[key] = self._build(type_, nodes, graph, barred, local, role, travel)
        return self._tables[key]

    def _waypoints(self, type_: TensorType, partial: frozenset[int]) -> tuple[Layout, ...]:
        key = (type_.shape, partial)
        if key not in self._between:
            self._between[key] = tuple(waypoints(type_, self.mesh, partial, self.apart))
        return self._between[key]

    def _with_ways_in(
        self, nodes: tuple[Layout, ...], partial: Sequence[int], check: Callable[[], None]
    ) -> tuple[Layout, ...]:
        """The nodes, and the beginnings of those to which no slices of a whole array lead.

        Statements name such layouts: parts of axes before other axes. Where nothing else led there, no plan would hold
        them, and what needs a collective otherwise would not be the cheapest way.
        """
        if nodes not in self._complete:
            graph, whole = self._graph(nodes, partial, check), Layout(((),) * len(nodes[0].dims))
            slices = np.array([step.kind is StepKind.SLICE for step in graph.steps], bool)[graph.numbers]
            ends = graph.sources[slices], graph.targets[slices]
            ways = csr_matrix((np.ones(len(ends[0])), ends), shape=(len(nodes), len(nodes)))
            reached = set(breadth_first_order(ways, nodes.index(whole), return_predecessors=False).tolist())
            lost = [lay for i, lay in enumerate(nodes) if i not in reached and not lay.unreduced]
            known = set(nodes)
            more = dict.fromkeys(way for lay in lost for way in beginnings(lay) if way not in known)
            self._complete[nodes] = (*nodes, *more)
        return self._complete[nodes]

    def _graph(self, nodes: tuple[Layout, ...], partial: Sequence[int], check: Callable[[], None]) -> _Graph:
        if nodes not in self._graphs:
            index = {(lay.dims, lay.unreduced): i for i, lay in enumerate(nodes)}
            maskable = frozenset(partial)
            sources: list[int] = []
            targets: list[int] = []
            numbers: list[int] = []
            known: dict[tuple[StepKind, tuple[int, ...], int, int], int] = {}
            for i, layout in enumerate(nodes):
                check()
                for kind, atoms, dim, to_dim, dims, unreduced in _ways_from(layout, self.mesh, maskable, self.apart):
                    j = index.get((dims, unreduced))
                    if j is not None:
                        sources.append(i)
                        targets.append(j)
                        numbers.append(known.setdefault((kind, atoms, dim, to_dim), len(known)))
            ends = np.array(sources, np.int64), np.array(targets, np.int64)
            self._graphs[nodes] = _Graph(*ends, np.array(numbers, np.int64), tuple(Step(*key) for key in known))
        return self._graphs[nodes]

    def _build(
        self,
        type_: TensorType,
        nodes: tuple[Layout, ...],
        graph: _Graph,
        barred: frozenset[int],
        still: frozenset[int],
        role: Role | None,
        travel: Travel,
    ) -> ReshardTable:
        n = len(nodes)
        possible = np.array([not self._is_out(step, type_, barred, still) for step in graph.steps], bool)
        number = np.flatnonzero(possible[graph.numbers])
        seconds = self._seconds(type_, nodes, graph, number, role, travel)
        number, seconds = number[np.isfinite(seconds)], seconds[np.isfinite(seconds)]
        pairs = graph.sources[number] * n + graph.targets[number]
        order = np.lexsort((seconds, pairs))  # of equal ones, that which comes first is taken
        pairs, first = np.unique(pairs[order], return_index=True)
        number, seconds = number[order[first]], seconds[order[first]]
        key = nodes, hashlib.sha256(pairs.tobytes() + seconds.tobytes()).digest()
        if key not in self._lengths:
            matrix = csr_matrix((seconds, (graph.sources[number], graph.targets[number])), shape=(n, n))
            self._lengths[key] = Lengths(matrix, self.lengths)
        if nodes not in self._index:
            self._index[nodes] = {lay: i for i, lay in enumerate(nodes)}
        return ReshardTable(nodes, self._index[nodes], self._lengths[key], graph.numbers[number], graph.steps)

    def _is_out(self, step: Step, type_: TensorType, barred: frozenset[int], still: frozenset[int]) -> bool:
        """Whether a step is impossible for a type, or not allowed."""
        if step.kind is StepKind.PERMUTE and type_.shape[step.dim] % self.mesh.size(step.atoms):
            return True  # blocks of a padded dimension differ in length, so no permutation of blocks changes the order
        if barred and step.kind not in (StepKind.SLICE, StepKind.MASK) and not barred.isdisjoint(step.atoms):
            return True
        return not still.isdisjoint(step.atoms)

    def _seconds(
        self,
        type_: TensorType,
        nodes: Sequence[Layout],
        graph: _Graph,
        number: np.ndarray,
        role: Role | None,
        travel: Travel,
    ) -> np.ndarray:
        """Seconds of these steps of a graph, for a value of a type in a role."""
        element = dtype_bytes(type_.dtype)
        shapes = np.array([lay.local_shape(type_.shape, self.mesh) for lay in nodes], np.int64).reshape(len(nodes), -1)
        local = shapes.prod(axis=1, dtype=np.float64) * element
        used, places = np.unique(graph.numbers[number], return_inverse=True)
        prices = np.zeros((len(used), 4))
        for row, step in enumerate(graph.steps[k] for k in used.tolist()):
            alpha, beta = self.prices.constants(step.kind, step.atoms)
            behind = travel.behind(step.kind, self.mesh.size(step.atoms), beta)
            share = self.exposure.share(step.kind, role, behind)
            moved = beta * travel.share(step.kind)
            linked = self.exposure.on_links(self.prices, step.kind, step.atoms) * travel.share(step.kind)
            prices[row] = (alpha * travel.latency(step.kind), moved, share * self.exposure.rest, linked)
        alpha, beta, share, linked = prices[places].T
        moved = np.zeros(len(number))
        before, after = local[graph.sources[number]], local[graph.targets[number]]
        devices = np.array([self.mesh.size(graph.steps[k].atoms) for k in used.tolist()], np.float64)[places]
        kinds = np.array([graph.steps[k].kind for k in used.tolist()], object)[places]
        turns = np.flatnonzero(kinds == StepKind.ALL_TO_ALL)
        split = np.array([graph.steps[k].to_dim for k in graph.numbers[number[turns]].tolist()], np.int64)
        whole, piece = (shapes[ends[number[turns]], split] for ends in (graph.sources, graph.targets))
        before[turns] = given_bytes(before[turns], whole, piece, devices[turns])
        for kind in StepKind:
            those = kinds == kind
            moved[those] = step_bytes(kind, before[those], after[those], devices[those])
        linked = linked * moved
        scatters = kinds == StepKind.REDUCE_SCATTER
        if self.prices.scatters_tiles and scatters.any():
            dims = np.array([graph.steps[k].dim for k in graph.numbers[number[scatters]].tolist()], np.int64)
            kept = scatters_tiles(shapes[graph.targets[number[scatters]]], dims, element)
            for edge in np.flatnonzero(scatters)[~kept]:
                constants = self.prices.constants(StepKind.ALL_REDUCE, graph.steps[graph.numbers[number[edge]]].atoms)
                alpha[edge] = constants[0] * travel.latency(StepKind.ALL_REDUCE)
                beta[edge] = constants[1] * travel.share(StepKind.ALL_REDUCE)
                moved[edge] = before[edge]
        return np.maximum((alpha + beta * moved) * share + linked, 1e-15)  # a zero would read as "no edge"
