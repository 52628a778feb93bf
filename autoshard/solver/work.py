"""A mutable copy of a cost network that reductions rewrite, and the way back to the original indices.

Forbidden entries are `FORBIDDEN` (2**61): twice it still fits into int64, so that two tables can be
added and clipped again. Every state keeps its original index in `domains`, and every reduction
leaves a step in `trail` that can complete an assignment of what remains (Kolmogorov-style reparametrisation
is not used here: all numbers stay exact integers).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from autoshard.errors import InputError
from autoshard.solver.network import IMPOSSIBLE, CostNetwork

FORBIDDEN = np.int64(2**61)
FORBIDDEN_FROM = np.int64(2**60)
MAX_TOTAL = 2**59
"""Sum of the largest finite costs that the exact arithmetic can carry."""
MAX_HELD = 2**61
"""Sum of the largest amounts that it can carry, where a limit may bind."""

TOGETHER = 1_000_000
"""Table entries that are looked through, and copied, together."""


class Infeasible(Exception):
    """The network has no feasible assignment; the message says why, in the original indices."""


class Step(Protocol):
    """One applied reduction."""

    def invert(self, choice: dict[int, int]) -> None:
        """Complete `choice` (node -> original state) for the node this step removed."""
        ...


Event = tuple[Any, ...]
"""A reduction as it is written down: its name, then nodes and strategies as numbers of the original network."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a node keeps live during the compressed time slots [start, stop), per remaining state."""

    start: int
    stop: int
    amounts: np.ndarray


@dataclass
class Work:
    """The network under reduction.

    costs, domains: per node, or None once it is gone. tables[i][j]: costs oriented [state of i, state of j];
    tables[j][i] is its transposed view. held: per node. limit: None when memory cannot bind. constant: cost
    of what has been removed. slots: number of time slots; times: when each begins, in the time of the original network.
    log: what was done so far, for who checks it (see `solver.certify`); None: nobody asks.
    """

    costs: list[np.ndarray | None]
    domains: list[np.ndarray]
    tables: list[dict[int, np.ndarray]]
    held: list[Sequence[Held]]
    limit: int | None
    slots: int
    constant: int = 0
    trail: list[Step] = field(default_factory=list)
    times: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    log: list[Event] | None = None

    def nodes(self) -> list[int]:
        """The nodes that are left, in increasing order."""
        return [i for i, cost in enumerate(self.costs) if cost is not None]

    def cost(self, node: int) -> np.ndarray:
        """The costs of a node that is left."""
        cost = self.costs[node]
        assert cost is not None
        return cost

    def edges(self) -> list[tuple[int, int]]:
        """Each pair of nodes that has a table, the smaller one first."""
        return [(i, j) for i in self.nodes() for j in sorted(self.tables[i]) if i < j]

    def entries(self) -> int:
        """Table entries of all edges."""
        return sum(self.tables[i][j].size for i, j in self.edges())

    def sizes(self) -> dict[str, int]:
        """Nodes, edges, states and table entries that are left."""
        nodes = self.nodes()
        return {
            "nodes": len(nodes),
            "edges": sum(len(self.tables[i]) for i in nodes) // 2,
            "states": sum(len(self.domains[i]) for i in nodes),
            "entries": self.entries(),
        }

    def set_edge(self, i: int, j: int, table: np.ndarray) -> None:
        """Give a pair these costs [state of i, state of j], in place of any it has."""
        self.tables[i][j] = table
        self.tables[j][i] = table.T

    def drop_edge(self, i: int, j: int) -> None:
        """Take away the costs of a pair."""
        del self.tables[i][j]
        del self.tables[j][i]

    def add_edge(self, i: int, j: int, table: np.ndarray) -> None:
        """Add costs on a pair, which may already have some."""
        have = self.tables[i].get(j)
        self.set_edge(i, j, table if have is None else clipped(have + table))

    def note(self, *event: Any) -> None:
        """Write down what was done, where somebody asks."""
        if self.log is not None:
            self.log.append(event)

    def keep(self, node: int, mask: np.ndarray, better: np.ndarray | None = None) -> None:
        """Restrict a node to the states where `mask` is true.

        better: where others are dominated, per state the place of one that is better; else they have no partner on
        some edge, or no room.
        """
        cost = self.cost(node)
        if self.log is not None:
            gone, domain = np.flatnonzero(~mask), self.domains[node]
            if better is None:
                self.note("drop", node, domain[gone])
            else:
                self.note("dominated", node, domain[gone], domain[better[gone]])
        self.costs[node] = cost[mask]
        self.domains[node] = self.domains[node][mask]
        self.held[node] = tuple(Held(h.start, h.stop, h.amounts[mask]) for h in self.held[node])
        for other in list(self.tables[node]):
            self.set_edge(node, other, self.tables[node][other][mask])

    def forget_costs(self) -> None:
        """Make every cost 0, so that only what is allowed and what fits counts."""
        self.note("forget")
        self.constant = 0
        for node in self.nodes():
            self.costs[node] = np.zeros_like(self.cost(node))
        for i, j in self.edges():
            table = self.tables[i][j]
            self.set_edge(i, j, np.where(table >= FORBIDDEN_FROM, FORBIDDEN, 0))

    def remove(self, node: int, step: Step) -> None:
        """Take a node out, with its edges; `step` can bring its choice back."""
        for other in list(self.tables[node]):
            self.drop_edge(node, other)
        self.costs[node] = None
        self.held[node] = ()
        self.trail.append(step)

    def complete(self, choice: dict[int, int]) -> dict[int, int]:
        """Original states of all nodes, from those of the remaining ones."""
        out = dict(choice)
        for step in reversed(self.trail):
            step.invert(out)
        return out

    def copy(self) -> "Work":
        """An independent copy without a log (arrays are shared: reductions never write into them)."""
        return Work(
            list(self.costs), list(self.domains), [dict(t) for t in self.tables], list(self.held),
            self.limit, self.slots, self.constant, list(self.trail), self.times,
        )  # fmt: skip

    def position(self, node: int, state: int) -> int | None:
        """Where an original state stands in the remaining domain."""
        domain = self.domains[node]
        at = int(np.searchsorted(domain, state))
        return at if at < len(domain) and domain[at] == state else None


def clipped(costs: np.ndarray) -> np.ndarray:
    """Sums of two tables with their forbidden entries made `FORBIDDEN` again."""
    return np.where(costs >= FORBIDDEN_FROM, FORBIDDEN, costs)


def from_network(
    network: CostNetwork, allowed: Sequence[np.ndarray | None] | None = None, *, logged: bool = False
) -> Work:
    """Parallel edges are added up, loops folded into nodes, forbidden costs marked, times compressed.

    allowed: per node a boolean mask (or None for all) of the states to keep. logged: write down what is done.
    Raises `Infeasible` when a node has no allowed state left.
    """
    n = network.n_nodes
    costs: list[np.ndarray | None] = []
    domains: list[np.ndarray] = []
    whole: dict[int, np.ndarray] = {}
    entries, starts = joined(network.costs)
    forbids = np.logical_or.reduceat(entries >= IMPOSSIBLE, starts).tolist() if n else []
    for i, given in enumerate(network.costs):
        mask = None if allowed is None else allowed[i]
        if mask is None and not forbids[i]:
            size = len(given)
            costs.append(np.asarray(given, dtype=np.int64))
            domains.append(whole[size] if size in whole else whole.setdefault(size, np.arange(size)))
            continue
        keep = given < IMPOSSIBLE
        domain = np.flatnonzero(keep if mask is None else keep & mask)
        if not len(domain):
            raise Infeasible(f"every state of node {i} is forbidden by its own cost")
        costs.append(np.asarray(given, dtype=np.int64)[domain])
        domains.append(domain)
    kept, kept_starts = joined([cost for cost in costs if cost is not None])
    total = 0
    if n:  # as Python integers: the lowest of 64 bits has no opposite there
        ends = np.maximum.reduceat(kept, kept_starts).tolist(), np.minimum.reduceat(kept, kept_starts).tolist()
        total = sum(max(high, -low) for high, low in zip(*ends, strict=True))

    tables: list[dict[int, np.ndarray]] = [{} for _ in range(n)]
    empty: list[Sequence[Held]] = [()] * n
    work = Work(costs, domains, tables, empty, network.usage_limit, 0, log=[] if logged else None)
    pairs, given_tables = [], []
    for edge in network.edges:
        i, j = edge.first, edge.second
        table = edge.costs
        if i == j:
            loop = np.ascontiguousarray(np.diagonal(table)).astype(np.int64)[domains[i]]
            fine = loop[loop < IMPOSSIBLE]
            total += max(int(fine.max(initial=0)), -int(fine.min(initial=0)))
            costs[i] = clipped(work.cost(i) + np.where(loop >= IMPOSSIBLE, FORBIDDEN, loop))
            continue
        if len(domains[i]) < table.shape[0] or len(domains[j]) < table.shape[1]:
            table = table[np.ix_(domains[i], domains[j])]
        pairs.append((i, j))
        given_tables.append(table)
    largest, marked = _marked(given_tables)
    total += largest
    for (i, j), table in zip(pairs, marked, strict=True):
        work.add_edge(i, j, table)
    if total > MAX_TOTAL:
        raise InputError(
            f"the costs of the network add up to as much as {total:.3g}; at most {MAX_TOTAL:.3g} can be "
            "handled exactly: use a coarser unit of cost"
        )
    for i in range(n):
        cost = work.cost(i)
        if (cost >= FORBIDDEN_FROM).any():
            mask = cost < FORBIDDEN_FROM
            if not mask.any():
                raise Infeasible(f"every state of node {i} is forbidden by its edges to itself")
            work.keep(i, mask)
    _compress_times(network, work)
    return work


def _marked(tables: list[np.ndarray]) -> tuple[int, list[np.ndarray]]:
    """The sum of the tables' largest finite magnitudes, and the tables as int64 with forbidden entries marked.

    Tables that are one array stay one array, and those that forbid nothing are not copied.
    """
    times: dict[int, int] = {}
    for table in tables:
        times[id(table)] = times.get(id(table), 0) + 1
    single = {id(table): table for table in tables}
    keys, parts = list(single), list(single.values())
    total, marked = 0, {}
    for begin, end in stretches([part.size for part in parts]):
        entries, starts = joined([part.ravel() for part in parts[begin:end]])
        high, low = np.maximum.reduceat(entries, starts), np.minimum.reduceat(entries, starts)
        hard = np.flatnonzero(high >= IMPOSSIBLE).tolist()
        if hard:
            own, own_starts = joined([parts[begin + k].ravel() for k in hard])
            forbidden = own >= IMPOSSIBLE
            high[hard] = np.maximum.reduceat(np.where(forbidden, 0, own), own_starts)
            low[hard] = np.minimum(low[hard], 0)
            own[forbidden] = FORBIDDEN
            for k, at in zip(hard, own_starts.tolist(), strict=True):
                part = parts[begin + k]
                marked[keys[begin + k]] = own[at : at + part.size].reshape(part.shape)
        magnitude = [max(top, -bottom) for top, bottom in zip(high.tolist(), low.tolist(), strict=True)]
        total += sum(most * times[key] for most, key in zip(magnitude, keys[begin:end], strict=True))
    return total, [marked[id(t)] if id(t) in marked else np.asarray(t, dtype=np.int64) for t in tables]


def stretches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(begin, end) of consecutive arrays that have at most `TOGETHER` entries in all, or that are single ones."""
    begin, held = 0, 0
    for k, size in enumerate(sizes):
        if k > begin and held + size > TOGETHER:
            yield begin, k
            begin, held = k, 0
        held += size
    if begin < len(sizes):
        yield begin, len(sizes)


def joined(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """A copy of flat arrays one after the other, in int64, and where each starts."""
    starts = np.cumsum([0, *map(len, arrays)])[:-1]
    none = np.zeros(0, dtype=np.int64)
    return np.concatenate([*arrays, none], dtype=np.int64, casting="unsafe"), starts


def _compress_times(network: CostNetwork, work: Work) -> None:
    """Number the time slots between events; drop the limit where it cannot bind."""
    if network.usage_limit is None:
        return
    found, held_amounts = [], []
    for i, usages in enumerate(network.usages):
        for u in usages:
            if u.start < u.stop:
                found.append((i, u.start, u.stop))
                all_left = len(work.domains[i]) == len(u.amounts)
                held_amounts.append(u.amounts if all_left else np.asarray(u.amounts)[work.domains[i]])
    if not found:
        work.limit = None
        work.note("times", work.times)
        return
    entries, at = joined(held_amounts)
    high, low = np.maximum.reduceat(entries, at), np.minimum.reduceat(entries, at)
    some = (high != 0) | (low != 0)
    node, start, stop = (np.array(column)[some] for column in zip(*found, strict=True))
    times = np.unique(np.concatenate([start, stop]))
    start, stop = np.searchsorted(times, start), np.searchsorted(times, stop)
    worst = [0] * (len(times) + 1)  # Python integers: amounts near 2**63 add up
    for a, b, most in zip(start.tolist(), stop.tolist(), high[some].tolist(), strict=True):
        worst[a] += most
        worst[b] -= most
    live, top = 0, 0
    for delta in worst:
        live += delta
        top = max(top, live)
    assert network.usage_limit is not None
    if top <= network.usage_limit and (low >= 0).all():
        work.limit = None
        work.note("times", work.times)
        return
    amount = sum(max(most, -least) for most, least in zip(high.tolist(), low.tolist(), strict=True))
    if amount > MAX_HELD:
        raise InputError(
            f"what the network holds adds up to as much as {amount:.3g}; at most {MAX_HELD:.3g} can be handled "
            "exactly: use a coarser unit of amounts and limit"
        )
    held: list[list[Held]] = [[] for _ in range(network.n_nodes)]
    for i, a, b, r in zip(node.tolist(), start.tolist(), stop.tolist(), np.flatnonzero(some).tolist(), strict=True):
        held[i].append(Held(a, b, np.asarray(held_amounts[r], dtype=np.int64)))
    work.held = [tuple(h) for h in held]
    work.slots = max(0, len(times) - 1)
    work.times = times[:-1]


def without_overlap(held: Sequence[Held]) -> tuple[Held, ...]:
    """What a node holds as stretches of time that do not overlap."""
    if all(a.stop <= b.start for a, b in pairwise(held)):
        return tuple(held)
    ends = sorted({t for h in held for t in (h.start, h.stop)})
    place = {t: k for k, t in enumerate(ends)}
    change = np.zeros((len(ends), len(held[0].amounts)), dtype=np.int64)
    for h in held:
        change[place[h.start]] += h.amounts
        change[place[h.stop]] -= h.amounts
    live = np.cumsum(change, axis=0)
    changed = np.flatnonzero(change.any(axis=1)).tolist()
    return tuple(Held(ends[a], ends[b], live[a]) for a, b in pairwise(changed) if live[a].any())
