"""Repeated layers: stretches of ops that are the same up to names share one decision.

An unrolled loop over layers writes the same ops again and again, at the same lines, in scopes that are named alike up
to numbers. Equal neighbouring stretches of the op list are found, their nodes are merged by position (inputs follow
where they enter at the same operand), and the quotient network is solved: costs add up, so one solution prices all
layers.

A stretch with a matmul is a layer, and is always merged. Other stretches (the optimizer's, over the parameters of all
layers) are merged only where they are anchored: some value that they read is merged already, and none is merged with
anything else. So the moments of a layer's parameters follow the layer, and two parameters of one layer that happen to
look alike stay apart. The longest stretches are not always those of layers: where all gradients are converted and then
all parameters, the two lists are alike as wholes. Stretches that nothing anchors give way to shorter ones that are.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from autoshard.costs.work import is_matmul
from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded
from autoshard.formulation.model import Node
from autoshard.program.program import Block, Op, Program
from autoshard.solver.factored import Factored, total
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge, Usage

MIN_STRETCH = 8
"""Shorter stretches than this many ops are not worth sharing."""
MOST_LOOKED_AT = 20
"""How many ops are looked at for stretches that are anchored, as a multiple of the ops of the program."""

_NUMBERS = re.compile("[0-9]+")


@dataclass(frozen=True)
class Repeats:
    """The quotient network and the way back: class_of[node] is its node in the quotient.

    note: says how much is shared, for people; empty where nothing is.
    """

    network: CostNetwork
    class_of: np.ndarray
    note: str = ""

    @property
    def shared(self) -> bool:
        """Whether any two nodes are merged."""
        return self.network.n_nodes < len(self.class_of)

    def expand(self, assignment: Sequence[int]) -> list[int]:
        """The assignment of the whole network that belongs to one of the quotient."""
        return [int(assignment[c]) for c in self.class_of]

    def contract(self, assignment: Sequence[int]) -> list[int]:
        """The assignment of the quotient that belongs to one of the whole network, whose repeats must agree."""
        out = [0] * self.network.n_nodes
        for node, cls in enumerate(self.class_of):
            out[cls] = int(assignment[node])
        return out

    def representative(self, cls: int) -> int:
        """The first node of the whole network that a node of the quotient stands for."""
        return int(np.argmax(self.class_of == cls))


class _Union:
    def __init__(self, n: int) -> None:
        self.parent = list(range(n))
        self.members = [1] * n

    def size(self, x: int) -> int:
        return self.members[self.find(x)]

    def find(self, x: int) -> int:
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def join(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[max(a, b)] = min(a, b)
            self.members[min(a, b)] += self.members[max(a, b)]


def find_repeats(program: Program, collected: Collected, encoded: Encoded, *, enabled: bool = True) -> Repeats:
    """Find repeated stretches in the program's body and build the quotient network."""
    n = encoded.network.n_nodes
    identity = Repeats(encoded.network, np.arange(n))
    if not enabled:
        return identity
    ops = program.body.ops
    runs = repeats([_signature(program, op) for op in ops])
    stretches = disjoint(runs, len(ops))
    if not stretches:
        return identity
    union = _Union(n)
    merging = _Merging(program, collected, encoded, union)
    loose = []
    for run in stretches:
        start, period, count = run
        if any(map(_has_matmul, ops[start : start + period])):
            for k in range(1, count):
                merging.merge(run, 0, k)
        else:
            loose.append(run)
    merging.settle(loose, runs)
    roots = sorted({union.find(i) for i in range(n)})
    number = {root: i for i, root in enumerate(roots)}
    class_of = np.array([number[union.find(i)] for i in range(n)], np.int64)
    if len(roots) == n:
        return identity
    layers = max(count for _, _, count in stretches)
    note = (
        f"repeated layers share one decision (up to {layers} repeats; {n - len(roots)} of {n} decisions are shared); "
        "the bound is on plans that do so"
    )
    return Repeats(_quotient(encoded.network, class_of, len(roots)), class_of, note)


def _has_matmul(op: Op) -> bool:
    return is_matmul(op) or any(_has_matmul(inner) for region in op.regions for inner in region.ops)


Run = tuple[int, int, int]
"""A stretch of ops that follows itself: where it starts, its period, and how often it is there."""


def _covered(run: Run) -> slice:
    start, period, count = run
    return slice(start, start + period * count)


@dataclass
class _Merging:
    """Merges nodes of stretches. taken: the ops of runs of which some are merged. budget: ops still to be looked at."""

    program: Program
    collected: Collected
    encoded: Encoded
    union: _Union

    def __post_init__(self) -> None:
        self.taken, self.budget = np.zeros(len(self.program.body.ops), bool), 0

    def merge(self, run: Run, j: int, k: int) -> None:
        """Merge the k-th stretch of a run with its j-th one."""
        for a, b in self._pairs(run, j, k):
            _merge(self.program, self.collected, self.encoded, self.union, a, b)
        self.taken[_covered(run)] = True

    def settle(self, loose: Sequence[Run], others: Sequence[Run]) -> None:
        """Merge what is anchored of loose runs; then of others, longest first, where no op is taken.

        Stretches are merged with the first of their run; in the end those that could not be, with the first of them.
        """
        left = [(run, [*range(run[2])]) for run in loose]
        self._settle(left)
        self.budget = MOST_LOOKED_AT * len(self.taken)
        while self.budget > 0:
            found = next((run for run in others if self._is_free(run) and self._anchored(run, 0, 1)), None)
            if found is not None:
                left = [(run, stretches) for run, stretches in left if not _overlap(run, found)]
                left.append((found, [*range(found[2])]))
            else:
                left = [(run, stretches[1:]) for run, stretches in left if len(stretches) > 2]
                if not left:
                    return
            self._settle(left)

    def _settle(self, left: Sequence[tuple[Run, list[int]]]) -> None:
        """Merge stretches of runs with the first one of each list, and take those that are out of it."""
        while True:
            anchored = [[k for k in waiting if self._anchored(run, first, k)] for run, (first, *waiting) in left]
            for (run, stretches), found in zip(left, anchored, strict=True):
                for k in found:
                    self.merge(run, stretches[0], k)
                    stretches.remove(k)
            if not any(anchored):
                return

    def _is_free(self, run: Run) -> bool:
        return self.budget > 0 and not self.taken[_covered(run)].any()

    def _pairs(self, run: Run, j: int, k: int) -> Iterable[tuple[Op, Op]]:
        (start, period, _), ops = run, self.program.body.ops
        one, two = start + j * period, start + k * period
        return zip(ops[one : one + period], ops[two : two + period], strict=True)

    def _anchored(self, run: Run, j: int, k: int) -> bool:
        """Whether some tensor of two stretches is merged already, and none of them with another one."""
        self.budget -= run[1]
        union, definition = self.union, self.collected.definition
        anchor = False
        for a, b in self._pairs(run, j, k):
            for left, right in zip((*a.operands, *a.results), (*b.operands, *b.results), strict=True):
                left_port, right_port = definition.get(left), definition.get(right)
                if left == right or left_port is None or right_port is None:
                    continue
                if union.find(left_port.node) == union.find(right_port.node):
                    anchor = True
                elif union.size(left_port.node) > 1 and union.size(right_port.node) > 1:
                    return False
        return anchor


def _overlap(one: Run, two: Run) -> bool:
    a, b = _covered(one), _covered(two)
    return a.start < b.stop and b.start < a.stop


def _signature(program: Program, op: Op) -> object:
    types = tuple(program.type_of(v) for v in (*op.operands, *op.results))
    return (op.kind, op.rule, _place(op.source), types, tuple(_block_signature(program, r) for r in op.regions))


def _place(source: str) -> str:
    """Where an op stands, up to the numbers in its scope: those count layers.

    >>> _place("layers.py:12 (dense) [blocks.0/dense_7]") == _place("layers.py:12 (dense) [blocks.31/dense_193]")
    True
    """
    line, opened, scope = source.partition(" [")
    return line + opened + _NUMBERS.sub("#", scope)


def _block_signature(program: Program, block: Block) -> object:
    return tuple(_signature(program, op) for op in block.ops)


def tandem_repeats(signatures: Sequence[object], min_stretch: int = MIN_STRETCH) -> list[tuple[int, int, int]]:
    """(start, period, count) of maximal runs in which a stretch follows itself, longest cover first, disjoint.

    >>> tandem_repeats(list("xabcabcabcy"), min_stretch=3)
    [(1, 3, 3)]
    """
    return disjoint(repeats(signatures, min_stretch), len(signatures))


def repeats(signatures: Sequence[object], min_stretch: int = MIN_STRETCH) -> list[Run]:
    """All maximal runs in which a stretch follows itself, longest cover first; they may overlap."""
    ids: dict[object, int] = {}
    codes = np.array([ids.setdefault(s, len(ids)) for s in signatures], np.int64)
    n = len(codes)
    runs: list[tuple[int, int, int, int]] = []
    for period in range(min_stretch, n // 2 + 1):
        equal = codes[:-period] == codes[period:]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], equal.view(np.int8), [0]))))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if end - begin >= period:
                count = (end - begin) // period + 1
                runs.append((count * period, -period, begin, count))
    runs.sort(key=lambda f: (-f[0], -f[1], f[2]))
    return [(begin, -negative, count) for _, negative, begin, count in runs]


def disjoint(runs: Sequence[Run], n: int) -> list[Run]:
    """One run after the other that none before it overlaps, by place. n: the number of ops."""
    out: list[Run] = []
    taken = np.zeros(n, bool)
    for run in runs:
        if not taken[_covered(run)].any():
            taken[_covered(run)] = True
            out.append(run)
    return sorted(out)


def _merge(program: Program, collected: Collected, encoded: Encoded, union: _Union, a: Op, b: Op) -> None:
    def join(x: int | None, y: int | None) -> None:
        if x is not None and y is not None and _alike(collected.nodes, encoded, x, y):
            union.join(x, y)

    join(collected.op_node.get(a.id), collected.op_node.get(b.id))
    for left, right in zip((*a.operands, *a.results), (*b.operands, *b.results), strict=True):
        if left == right:
            continue
        for side in (collected.definition, collected.form):
            one, two = side.get(left), side.get(right)
            if one is not None and two is not None:
                kinds = {collected.nodes[one.node].kind, collected.nodes[two.node].kind}
                if len(kinds) == 1:
                    join(one.node, two.node)
    for mine, other in zip(a.regions, b.regions, strict=True):
        for x, y in zip(mine.args, other.args, strict=True):
            one, two = collected.definition.get(x), collected.definition.get(y)
            if one is not None and two is not None:
                join(one.node, two.node)
        for inner, twin in zip(mine.ops, other.ops, strict=True):
            _merge(program, collected, encoded, union, inner, twin)


def _alike(nodes: Sequence[Node], encoded: Encoded, a: int, b: int) -> bool:
    """Whether two nodes may be one decision: the same states in the same order, and the same ones allowed."""
    x, y = nodes[a], nodes[b]
    if x.kind is not y.kind or not np.array_equal(encoded.states[a], encoded.states[b]):
        return False
    if x.space is not None or y.space is not None:
        return x.space is y.space
    if x.copies is None or y.copies is None:
        return x.copies is y.copies and x.layouts == y.layouts
    same = x.layouts == y.layouts and x.defined_in == y.defined_in
    return same and bool(np.array_equal(x.copies, y.copies))


def _quotient(network: CostNetwork, class_of: np.ndarray, count: int) -> CostNetwork:
    costs: list[np.ndarray | None] = [None] * count
    usages: list[list[Usage]] = [[] for _ in range(count)]
    facets: list[np.ndarray | None] = [None] * count
    for node, cls in enumerate(class_of.tolist()):
        held = costs[cls]
        costs[cls] = network.costs[node].copy() if held is None else _add(held, network.costs[node])
        if network.usages:
            usages[cls].extend(network.usages[node])
        if network.facets and facets[cls] is None:
            facets[cls] = network.facets[node]
    merged: dict[tuple[int, int], list[np.ndarray]] = {}
    turned: dict[int, np.ndarray] = {}
    for edge in network.edges:
        a, b = int(class_of[edge.first]), int(class_of[edge.second])
        table = edge.costs
        if a == b:
            held = costs[a]
            assert held is not None
            costs[a] = _add(held, table.diagonal())
            continue
        if a > b:
            a, b, table = b, a, turned.setdefault(id(table), table.T)
        merged.setdefault((a, b), []).append(table)
    sums: dict[tuple[int, ...], np.ndarray] = {}
    edges = tuple(Edge(a, b, _sum(tables, sums)) for (a, b), tables in sorted(merged.items(), key=lambda m: m[0]))
    return CostNetwork(
        tuple(c for c in costs if c is not None), edges, tuple(usages), network.usage_limit, tuple(facets)
    )


def _sum(tables: Sequence[np.ndarray], known: dict[tuple[int, ...], np.ndarray]) -> np.ndarray:
    """The sum of tables; equal sums are kept once, because layers share their arrays."""
    if len(tables) == 1:
        return tables[0]
    key = tuple(sorted(map(id, tables)))
    if key not in known and all(isinstance(table, Factored) for table in tables):
        known[key] = total(tables)  # pyright: ignore
    if key not in known:
        times = {id(table): (table, key.count(id(table))) for table in tables}
        parts = [
            table if n == 1 else np.where(table >= IMPOSSIBLE, IMPOSSIBLE, table * n) for table, n in times.values()
        ]
        known[key] = reduce(_add, parts)
    return known[key]


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((a >= IMPOSSIBLE) | (b >= IMPOSSIBLE), IMPOSSIBLE, a + b)
