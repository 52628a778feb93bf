"""Random small cost networks, and the judge of them all: trying every assignment."""

import itertools

import numpy as np

from autoshard.solver import IMPOSSIBLE, CostNetwork, Edge, Usage, evaluate
from autoshard.solver.factored import Factored
from autoshard.verify.certificate import Factors, Verdict, check_certificate


def random_network(
    seed: int,
    *,
    nodes: int = 6,
    states: int = 4,
    forbidden: float = 0.2,
    memory: bool = True,
    density: float = 0.35,
) -> CostNetwork:
    """Negative costs, forbidden entries, parallel edges, loops, and nodes with up to two usages."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, nodes + 1))
    sizes = rng.integers(1, states + 1, n)
    costs = [rng.integers(-5, 30, d) for d in sizes]
    costs = [np.where(rng.random(len(c)) < 0.1, 10**18, c) for c in costs]
    edges = []
    for i in range(n):
        for j in range(n):
            if rng.random() < density and (i != j or rng.random() < 0.2):
                table = rng.integers(-5, 30, (sizes[i], sizes[j]))
                edges.append(Edge(i, j, np.where(rng.random(table.shape) < forbidden, 10**15, table)))
    if not memory or not seed % 3:
        return CostNetwork(costs, edges)
    usages = []
    for i in range(n):
        own = []
        for _ in range(int(rng.integers(0, 3))):
            start = int(rng.integers(0, 8))
            own.append(Usage(start, int(rng.integers(start, 10)), rng.integers(0, 50, sizes[i])))
        usages.append(own)
    return CostNetwork(costs, edges, usages, int(rng.integers(20, 40 * n)))


def optimum(network: CostNetwork) -> int | None:
    """The cost of the best feasible assignment, by trying all; None when there is none."""
    found = (evaluate(network, x) for x in itertools.product(*(range(len(c)) for c in network.costs)))
    return min((e.cost for e in found if e.feasible and e.cost is not None), default=None)


def layered_network(seed: int, layers: int = 60, labels: int = 3, facets: int = 2) -> CostNetwork:
    """A chain with side branches and skips; states are combinations of `facets` labels."""
    rng = np.random.default_rng(seed)
    grid = np.array(list(itertools.product(range(labels), repeat=facets)))
    costs = [rng.integers(0, 1000, len(grid)) for _ in range(layers)]
    edges = []
    for i in range(1, layers):
        for j in sorted({i - 1, max(0, i - int(rng.integers(2, 6)))} - {i}):
            weights = rng.integers(1, 300, (facets, labels, labels))
            table = sum(weights[f][np.ix_(grid[:, f], grid[:, f])] for f in range(facets))
            table = table * (1 + (grid[:, None, :] != grid[None, :, :]).sum(axis=2))
            edges.append(Edge(j, i, np.where((grid[:, None, :] == grid[None, :, :]).all(axis=2), 0, table)))
    usages = [
        [Usage(i, i + int(rng.integers(1, 9)), 2 ** (facets - (grid > 0).sum(axis=1)) * 100)] for i in range(layers)
    ]
    return CostNetwork(costs, edges, usages, None, [grid] * layers)


def optimum_by_tensor(network: CostNetwork) -> int | None:
    """As `optimum`, with all assignments in one array: node i varies along dimension i."""
    n = network.n_nodes
    sizes = tuple(len(c) for c in network.costs)

    def along(values: np.ndarray, *nodes: int) -> np.ndarray:
        shape = [1] * n
        for i in nodes:
            shape[i] = sizes[i]
        return values.reshape(shape)

    forbidden = np.zeros(sizes, dtype=bool)
    total = np.zeros(sizes, dtype=np.int64)
    tables = [(c, (i,)) for i, c in enumerate(network.costs)]
    for edge in network.edges:
        if edge.first == edge.second:
            tables.append((np.diagonal(edge.costs), (edge.first,)))
        elif edge.first < edge.second:
            tables.append((edge.costs, (edge.first, edge.second)))
        else:
            tables.append((np.ascontiguousarray(edge.costs.T), (edge.second, edge.first)))
    for values, nodes in tables:
        bad = values >= IMPOSSIBLE
        forbidden |= along(bad, *nodes)
        total += along(np.where(bad, 0, values), *nodes)
    if network.usage_limit is not None:
        used = [(u, i) for i, usages in enumerate(network.usages) for u in usages if u.start < u.stop]
        for time in sorted({u.start for u, _ in used}):
            live = np.zeros(sizes, dtype=np.int64)
            for u, i in used:
                if u.start <= time < u.stop:
                    live += along(u.amounts, i)
            forbidden |= live > network.usage_limit
    return None if forbidden.all() else int(total[~forbidden].min())


def hard_network(
    seed: int, nodes: int = 1_000, states: int = 8, forbidden: float = 0.6, room: float = 1.03
) -> CostNetwork:
    """Most pairs forbidden and little room, with an assignment hidden in it that is feasible.

    Every node is joined to one shortly before it, some to one far before. `room`: the limit as a multiple of what
    the hidden assignment holds at most; other states hold less or more.
    """
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, states, nodes)
    costs = [rng.integers(0, 1_000, states) for _ in range(nodes)]
    edges = []
    for i in range(1, nodes):
        others = {max(0, i - int(rng.integers(1, 6)))}
        if rng.random() < 0.5:
            others.add(int(rng.integers(0, i)))
        for j in sorted(others):
            table = rng.integers(0, 3_000, (states, states))
            bad = rng.random(table.shape) < forbidden
            bad[hidden[j], hidden[i]] = False
            edges.append(Edge(j, i, np.where(bad, 10**18, table)))
    usages = []
    for i in range(nodes):
        start = int(rng.integers(max(0, i - 2), i + 1))
        stop = start + int(rng.integers(1, 12 if rng.random() < 0.9 else nodes // 3))
        usages.append((Usage(start, stop, rng.integers(1, 100, states)),))
    whole = CostNetwork(costs, edges, usages, None)
    return CostNetwork(costs, edges, usages, int(evaluate(whole, hidden.tolist()).peak * room))


def judged(network: CostNetwork, data: bytes) -> Verdict:
    """What the checker says of a certificate for a network."""
    usages = [[(u.start, u.stop, u.amounts) for u in own] for own in network.usages] or [[] for _ in network.costs]
    tables = [e.costs for e in network.edges]
    kept = [Factors(t.base, t.rows, t.columns, t.scale) if isinstance(t, Factored) else t for t in tables]
    edges = [(e.first, e.second, table) for e, table in zip(network.edges, kept, strict=True)]
    return check_certificate(data, network.costs, edges, usages, network.usage_limit)


def tight(seed: int, nodes: int = 7, states: int = 4) -> CostNetwork:
    """A cycle with chords whose memory limit binds: too dense to be reduced away."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, states + 1, nodes)
    costs = [rng.integers(0, 40, d) for d in sizes]
    edges = []
    for i in range(nodes):
        for j in range(i + 1, nodes):
            if rng.random() < 0.6:
                table = rng.integers(0, 40, (sizes[i], sizes[j]))
                edges.append(Edge(i, j, np.where(rng.random(table.shape) < 0.1, 10**15, table)))
    usages = [(Usage(int(rng.integers(0, 4)), int(rng.integers(4, 8)), rng.integers(0, 50, d)),) for d in sizes]
    least = sum(int(u.amounts.min()) for (u,) in usages)
    most = sum(int(u.amounts.max()) for (u,) in usages)
    return CostNetwork(costs, edges, usages, int(least + rng.random() * 0.6 * (most - least)))
