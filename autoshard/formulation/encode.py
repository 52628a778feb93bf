"""Encoding: nodes and links become a `CostNetwork` in integer ticks.

A *tick* is a power of ten seconds, fine enough that the cheapest step of the program is about 1e9 ticks; the
rounding error of a plan is at most half a tick per node and edge and is part of the reported gap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import floor, log10

import numpy as np

from autoshard.costs.exposure import Exposure
from autoshard.costs.fusion import Fusion
from autoshard.costs.manual import manual_collectives, manual_compute_s
from autoshard.costs.pricing import StepPrices
from autoshard.costs.reshard import ReshardTable, ReshardTables
from autoshard.costs.roofline import op_seconds
from autoshard.deadline import Check, no_check
from autoshard.formulation.collect import Collected
from autoshard.formulation.edges import EdgeTables, entries_of
from autoshard.formulation.model import Counted, Link, Node, NodeKind
from autoshard.formulation.ticks import Ticks
from autoshard.program.program import Op, Program
from autoshard.program.types import TensorType, dtype_bytes
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.solver.network import CostNetwork, Edge, Usage

MEMORY_PRICE_S_PER_BYTE = 1e-16
"""The minute price on held bytes, in seconds: it breaks ties between plans of equal cost towards less memory."""

FACTORED_ENTRIES = 250_000_000
"""With more entries in its tables (2 GB), a network keeps them as rows and columns of smaller ones."""

_TICKS_PER_STEP = 1e9
_LEAST_STEP_S = 1e-6


@dataclass(frozen=True)
class Encoded:
    """The network, what a tick is worth in seconds, and the reshard table of every tensor type."""

    network: CostNetwork
    tick_s: float
    tables: dict[TensorType, ReshardTable]
    states: tuple[np.ndarray, ...]  # per node of the network, per state: its number among the collected states
    priced: tuple[np.ndarray, ...] = ()  # per node of the network, per state: bytes with a minute price
    special: dict[object, ReshardTable] = field(default_factory=dict)  # of links that are not plain: see `way_of`
    least_s: float = 0.0  # the sum of the cheapest state of every node; no plan costs less
    left_out: tuple[int, int] = (0, 0)  # number of edges that are not kept, and of the entries of their tables
    counted: dict[int, Counted] = field(default_factory=dict)  # by the number of the link whose reshard is counted
    unpriced: int = 0  # number of nodes and edges that only forbid: they cost nothing, so nothing of them is rounded
    too_long: bool = False  # whether choices are impossible only because they take nearly forever

    def table(self, type_: TensorType, link: Link | None = None) -> ReshardTable:
        """The reshards of a tensor type; with a link, those that the link allows, at the prices that count there."""
        return self.tables[type_] if link is None or link.is_plain else self.special[way_of(type_, link)]

    def way_taken(self, number: int, link: Link, state: Sequence[int]) -> Link:
        """A link as its reshard is made under chosen states; number: of the link among all."""
        counted = self.counted.get(number)
        avoided = None if counted is None else counted.avoided[state[counted.node]]
        return taken(link, avoided or frozenset())

    @property
    def rounding_s(self) -> float:
        """Largest difference in seconds between a cost in ticks and the unrounded cost of the same assignment."""
        parts = self.network.n_nodes + len(self.network.edges) + self.left_out[0]
        return self.tick_s / 2 * (parts - self.unpriced)

    @property
    def entries(self) -> int:
        """Number of entries in the tables of all edges."""
        return sum(e.costs.size for e in self.network.edges) + self.left_out[1]

    def without_edges(self) -> "Encoded":
        """The same without edges, to save memory where a quotient network has all that is needed of them."""
        left_out = (len(self.network.edges) + self.left_out[0], self.entries)
        return replace(self, network=replace(self.network, edges=()), left_out=left_out)


def way_of(type_: TensorType, link: Link) -> object:
    """What tells the reshards of links apart."""
    return type_, link.barred, link.local, link.role, link.travel


def taken(link: Link, avoided: frozenset[int]) -> Link:
    """The link as its reshard is made by a way that moves none of these atoms."""
    return replace(link, local=link.local | avoided) if avoided else link


def _inside_seconds(
    op: Op, program: Program, node: Node, mesh: AtomMesh, prices: StepPrices, exposure: Exposure
) -> np.ndarray:
    """[placement] seconds of the collectives inside an op: exchanges of edges, and partial results combined by max
    or min.
    """
    rule, space = op.rule, node.space
    assert rule is not None and space is not None
    out = np.zeros(len(space.placements))
    for s, placement in enumerate(space.placements if rule.halos or rule.ties else ()):
        for exchange in placement.exchanges(rule, mesh):
            type_ = program.type_of(op.operands[exchange.operand])
            local = space.operand_layouts[exchange.operand][s].local_shape(type_.shape, mesh)
            size = exchange.elements(local) * dtype_bytes(type_.dtype)
            share = exposure.share_of("permute", op.operands[exchange.operand], op.id)
            seconds = prices.step_s("permute", exchange.atoms, size, size)
            out[s] += exposure.counted_s(prices, "permute", exchange.atoms, size, seconds, share)
    if rule.combiner == "add":
        return out
    for s, placement in enumerate(space.placements):
        atoms = placement.combine_atoms(rule)
        for k, result in enumerate(op.results) if atoms else ():
            type_ = program.type_of(result)
            local = np.prod(space.result_layouts[k][s].local_shape(type_.shape, mesh), dtype=float)
            held = local * type_.bytes / max(1, type_.elements)
            share = exposure.share_of("all_reduce", result, op.id)
            seconds = prices.step_s("all_reduce", atoms, held, held)
            out[s] += exposure.counted_s(prices, "all_reduce", atoms, held, seconds, share)
    return out


def _manual_seconds(
    op: Op, program: Program, fusion: Fusion, prices: StepPrices, exposure: Exposure, trips: int
) -> float:
    """Seconds of one execution of a user's shard_map."""
    communication = 0.0
    for row in manual_collectives(op, program, prices, trips):
        share = exposure.share_of(row.kind, row.value, row.op.id)
        communication += exposure.counted_s(prices, row.kind, row.atoms, row.bytes, row.seconds, share) * row.times
    return manual_compute_s(op, program, fusion, prices, trips) * exposure.rest + communication


def price_nodes(
    collected: Collected,
    program: Program,
    mesh: AtomMesh,
    fusion: Fusion,
    prices: StepPrices,
    exposure: Exposure,
    trips: int = 1,
) -> None:
    """Set the seconds of every placement on the op nodes, multiplied by the node's weight."""
    ops, updated, copied = program.ops, prices.updated(program), prices.copied(program)
    through = prices.through(program, fusion)
    cache: dict[object, np.ndarray] = {}
    for node in collected.nodes:
        if node.kind is NodeKind.BOUNDARY and node.op is not None:
            seconds = _manual_seconds(ops[node.op], program, fusion, prices, exposure, trips)
            node.costs = np.full(1, seconds * node.weight)
        if node.op is None or node.space is None:
            continue
        op = ops[node.op]
        key = (
            op.kind, op.rule, id(node.space), tuple(program.type_of(v) for v in (*op.operands, *op.results)),
            tuple(v in fusion for v in (*op.operands, *op.results)),
            tuple(str(op.attrs.get(name, "")) for name in ("window", "taps", "work", "precision")),
            prices.kind_of(op, program),
            tuple(exposure.role(v, op.id) for v in (*op.operands, *op.results)),
            tuple(op.operands.index(v) for v in op.operands),  # what is given twice is read once
            tuple(v in updated for v in op.operands), copied.get(op.id), tuple(through.get(v) for v in op.operands),
        )  # fmt: skip
        if key not in cache:
            seconds = op_seconds(op, program, node.space.shards, fusion, prices) * exposure.rest
            cache[key] = seconds + _inside_seconds(op, program, node, mesh, prices, exposure)
        if (key, node.weight) not in cache:
            cache[key, node.weight] = cache[key] * node.weight
        node.costs = cache[key, node.weight]


def layout_facets(layouts: Sequence[Layout], mesh: AtomMesh) -> np.ndarray:
    """[state, mesh axis] labels; two states have equal labels where the axis does the same in both."""
    names = mesh.mesh.axis_names
    known: list[dict[tuple[int, ...], int]] = [{} for _ in names]
    out = np.zeros((len(layouts), len(names)), np.int64)
    for row, layout in enumerate(layouts):
        where = {a: d for d, atoms in enumerate(layout.dims) for a in atoms}
        where.update(dict.fromkeys(layout.unreduced, -2))
        for column, name in enumerate(names):
            key = tuple(where.get(a, -1) for a in mesh.atoms_of[name])
            out[row, column] = known[column].setdefault(key, len(known[column]))
    return out


class _Same:
    """Keeps one array of those with equal numbers, because programs repeat their layers."""

    def __init__(self) -> None:
        self.known: dict[object, np.ndarray] = {}

    def of(self, array: np.ndarray) -> np.ndarray:
        return self.known.setdefault((array.dtype.char, array.shape, array.tobytes()), array)


def _special_tables(
    links: Sequence[Link],
    program: Program,
    tables: ReshardTables,
    by_type: Mapping[TensorType, Mapping[Layout, None]],
) -> dict[object, ReshardTable]:
    """The tables of links that are not plain, and of those to what is gathered as it is used: see `way_of`."""
    out: dict[object, ReshardTable] = {}
    for one in links:
        type_ = program.type_of(one.value)
        for link in (one,) if one.as_used is None else (one, one.taken_as_used):
            if not link.is_plain and (way := way_of(type_, link)) not in out:
                out[way] = tables.table(type_, by_type[type_], link.barred, link.local, link.role, link.travel)
    return out


def encode(
    collected: Collected,
    program: Program,
    mesh: AtomMesh,
    tables: ReshardTables,
    *,
    memory_limit: int | None = None,
    memory_price: float = MEMORY_PRICE_S_PER_BYTE,
    tick_s: float | None = None,
    check: Check = no_check,
) -> Encoded:
    """The network of collected and priced nodes (see `price_nodes`). tick_s: of its ticks; chosen by the cheapest state
    of every node where not given. check: called now and then; may raise to stop.
    """
    nodes = collected.nodes
    kept = tuple(
        np.arange(node.states) if node.allowed is None else np.asarray(node.allowed, np.int64) for node in nodes
    )
    by_type: dict[TensorType, dict[Layout, None]] = {}
    added: set[tuple[TensorType, int]] = set()
    for link in collected.links:
        type_ = program.type_of(link.value)
        seen = by_type.setdefault(type_, {})
        for port in (link.source, link.target):
            if (type_, id(port.layouts)) not in added:  # many values share one tuple
                added.add((type_, id(port.layouts)))
                seen.update(dict.fromkeys(port.layouts))
    table_of: dict[TensorType, ReshardTable] = {}
    for done, (type_, layouts) in enumerate(by_type.items()):
        step = partial(check, "pricing reshards of tensor types", done, len(by_type))
        step()
        table_of[type_] = tables.table(type_, layouts, check=step)
    special = _special_tables(collected.links, program, tables, by_type)

    least = sum(float(node.costs[k].min()) for node, k in zip(nodes, kept, strict=True) if len(k))
    least_s = 0.0
    ticks = Ticks(10.0 ** floor(log10(max(least, _LEAST_STEP_S) / _TICKS_PER_STEP)) if tick_s is None else tick_s)

    costs, usages, facets, priced = [], [], [], []
    labelled: dict[int, np.ndarray] = {}
    shared = _Same()
    for node, keep in zip(nodes, kept, strict=True):
        held = [(a, b, np.asarray(amount)[keep]) for a, b, amount in node.usages if a < b]
        node.usages = [(a, b, shared.of(amount)) for a, b, amount in node.usages]
        priced.append(shared.of(np.broadcast_to(np.ceil(node.priced), node.costs.shape)[keep]))
        full = node.costs[keep] + priced[-1] * memory_price
        least_s += float(full.min()) if full.size else 0.0
        costs.append(shared.of(ticks(full)))
        usages.append([Usage(a, b, shared.of(np.ceil(amount).astype(np.int64))) for a, b, amount in held])
        labels = node.facets
        if labels is None:
            if id(node.layouts) not in labelled:
                labelled[id(node.layouts)] = layout_facets(node.layouts, mesh)
            labels = labelled[id(node.layouts)]
        facets.append(shared.of(labels[keep]))
    making = EdgeTables(nodes, kept, ticks, factored=entries_of(collected, kept, program) > FACTORED_ENTRIES)
    types = [program.type_of(link.value) for link in collected.links]
    tables_of = [
        table_of[t] if link.is_plain else special[way_of(t, link)]
        for t, link in zip(types, collected.links, strict=True)
    ]
    as_used = {
        number: special[way_of(types[number], link.taken_as_used)]
        for number, link in enumerate(collected.links)
        if link.as_used is not None
    }
    made = making.of_all(collected.links, tables_of, as_used, check)
    edges = [
        Edge(link.source.node, link.target.node, costs_of)
        for link, costs_of in zip(collected.links, made, strict=True)
        if costs_of is not None
    ]
    network = CostNetwork(
        tuple(costs), tuple(edges), tuple(usages), None if memory_limit is None else int(memory_limit), tuple(facets)
    )
    return Encoded(network, ticks.tick_s, table_of, kept, tuple(priced), special, least_s, too_long=ticks.too_long)
