"""Networks with memory rows for the soundness experiment: random, planted, and cut out of larger ones."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from autoshard.solver import IMPOSSIBLE, CostNetwork, Edge, Usage

KINDS = ("random", "planted", "equal", "contest", "planner")
KNAPSACK = "knapsack"


def random_(rng: np.random.Generator) -> CostNetwork:
    """5 to 24 nodes, from sparse to dense, up to half of the pairs forbidden, one or two usages a node."""
    n = int(rng.integers(5, 25))
    sizes = rng.integers(1, 7, n)
    scale = int(rng.choice([10, 1000, 10**7]))
    costs = [rng.integers(0, scale, d) for d in sizes]
    density, forbidden = rng.choice([0.1, 0.2, 0.4]), rng.choice([0.0, 0.1, 0.3, 0.5])
    edges = []
    for i in range(n):
        for j in range(i + 1, n):
            if rng.random() < density:
                table = rng.integers(0, scale, (sizes[i], sizes[j]))
                edges.append(Edge(i, j, np.where(rng.random(table.shape) < forbidden, IMPOSSIBLE, table)))
    usages = [_usages(rng, d, int(rng.integers(1, 3)), int(rng.choice([10, 10**9]))) for d in sizes]
    return _limited(rng, CostNetwork(costs, edges, usages, None))


def equal(rng: np.random.Generator) -> CostNetwork:
    """Strategies that hold the same amounts, as layouts over axes of one size do; ties in costs as well."""
    base = random_(rng)
    usages = [tuple(Usage(u.start, u.stop, u.amounts // _step(u.amounts) * _step(u.amounts)) for u in own)
              for own in base.usages]  # fmt: skip
    costs = [c // 4 * 4 for c in base.costs]
    return _limited(rng, CostNetwork(costs, base.edges, usages, None))


def planted(rng: np.random.Generator) -> CostNetwork:
    """A hidden assignment is allowed and within the limit, which is tight; most other pairs are forbidden."""
    n = int(rng.integers(8, 40))
    sizes = rng.integers(2, 8, n)
    hidden = [int(rng.integers(0, d)) for d in sizes]
    costs = [rng.integers(0, 1000, d) for d in sizes]
    edges = []
    for i in range(1, n):
        for j in sorted({int(x) for x in rng.integers(max(0, i - 6), i, 2)}):
            table = rng.integers(0, 1000, (sizes[j], sizes[i]))
            table = np.where(rng.random(table.shape) < rng.choice([0.2, 0.5, 0.7]), IMPOSSIBLE, table)
            table[hidden[j], hidden[i]] = int(rng.integers(0, 1000))
            edges.append(Edge(j, i, table))
    usages = [_usages(rng, d, 1, 10**9) for d in sizes]
    network = CostNetwork(costs, edges, usages, None)
    return CostNetwork(costs, edges, usages, int(_peak(network, hidden) * rng.choice([1.0, 1.05, 1.3])))


def knapsack(rng: np.random.Generator) -> CostNetwork:
    """Groups of equal weights, each whole, halved or quartered, and the steps that read them, one after the other.

    Under a limit at which some weights must be cut otherwise than others, as in a step of training.
    """
    unit, scale = int(rng.choice([1, 3, 65536])), int(rng.choice([10, 1000, 10**7]))
    costs, usages, edges = [], [], []
    last: int | None = None
    for _ in range(int(rng.integers(1, 4))):
        amounts = unit * np.array([4, 2, 2, 1]) * int(rng.choice([1, 2, 4]))
        own = np.sort(rng.integers(0, scale, 4))
        step = np.where(rng.random((4, 3)) < rng.choice([0.0, 0.2]), IMPOSSIBLE, rng.integers(0, scale, (4, 3)))
        onward = rng.integers(0, scale, (3, 3))
        for _ in range(int(rng.integers(2, 5))):
            weight, op = len(costs), len(costs) + 1
            costs += [own, rng.integers(0, scale, 3)]
            start = int(rng.integers(0, 6))
            held = Usage(start, start + int(rng.integers(1, 8)), unit * rng.integers(0, 3, 3))
            usages += [(Usage(0, 12, amounts),), (held,)]
            edges.append(Edge(weight, op, step))
            if last is not None:
                edges.append(Edge(last, op, onward))
            last = op
    return _limited(rng, CostNetwork(costs, edges, usages, None))


def cut_out(rng: np.random.Generator, whole: CostNetwork, neighbours: list[list[int]]) -> CostNetwork | None:
    """A connected piece of a larger network, its surroundings left out, under a limit of its own."""
    root, size = int(rng.integers(0, whole.n_nodes)), int(rng.integers(6, 40))
    inside, frontier = {root: 0}, [root]
    while frontier and len(inside) < size:
        at = frontier.pop(int(rng.integers(0, len(frontier))))
        near = neighbours[at]
        for j in rng.permutation(len(near))[:8].tolist():
            if near[j] not in inside and len(inside) < size:
                inside[near[j]] = len(inside)
                frontier.append(near[j])
    if len(inside) < 4:
        return None
    nodes = list(inside)
    kept = [np.sort(rng.permutation(len(whole.costs[i]))[: int(rng.integers(4, 13))]) for i in nodes]
    number = {node: k for k, node in enumerate(nodes)}
    edges = [
        Edge(number[e.first], number[e.second], e.costs[np.ix_(kept[number[e.first]], kept[number[e.second]])])
        for i in nodes
        for e in _edges_of(whole)[i]
        if e.first == i and e.second in number
    ]
    costs = [np.minimum(whole.costs[i][k], IMPOSSIBLE) for i, k in zip(nodes, kept, strict=True)]
    usages = [
        tuple(Usage(u.start, u.stop, u.amounts[k]) for u in whole.usages[i]) for i, k in zip(nodes, kept, strict=True)
    ]
    return _limited(rng, CostNetwork(costs, edges, usages, None))


_KNOWN: dict[int, list[list[Edge]]] = {}


def _edges_of(network: CostNetwork) -> list[list[Edge]]:
    if id(network) not in _KNOWN:
        out: list[list[Edge]] = [[] for _ in range(network.n_nodes)]
        for e in network.edges:
            out[e.first].append(e)
            if e.second != e.first:
                out[e.second].append(e)
        _KNOWN[id(network)] = out
    return _KNOWN[id(network)]


def neighbours_of(network: CostNetwork) -> list[list[int]]:
    return [
        sorted({e.second if e.first == i else e.first for e in own} - {i}) for i, own in enumerate(_edges_of(network))
    ]


def contest_networks(folder: Path) -> Iterator[CostNetwork]:
    from autoshard.solver.contest.files import read_problem

    for path in sorted(folder.glob("*iopddl-*.json*")):
        yield read_problem(path).network


def planner_networks() -> Iterator[CostNetwork]:
    """The networks of library programs on three meshes, as the planner makes them."""
    from autoshard.costmodels import load_profile, place_mesh
    from autoshard.frontends.jax.function import trace
    from autoshard.models import build
    from autoshard.planning.model import build_model
    from autoshard.planning.problem import Problem
    from autoshard.sharding.mesh import Mesh

    for name, sizes in (("mlp", {"x": 4, "y": 2}), ("transformer", {"x": 2, "y": 2}), ("moe", {"x": 2, "y": 2})):
        model = build(name)
        program = trace(model.step, *model.specs).program
        machine = place_mesh(load_profile("tpu_v5e"), sizes)
        yield build_model(Problem.make(program, Mesh.from_dict(sizes), machine)).encoded.network


def _usages(rng: np.random.Generator, strategies: int, count: int, scale: int) -> tuple[Usage, ...]:
    out = []
    for _ in range(count):
        start = int(rng.integers(0, 12))
        out.append(Usage(start, start + int(rng.integers(1, 8)), rng.integers(0, scale, strategies)))
    return tuple(out)


def _step(amounts: np.ndarray) -> int:
    return max(1, int(amounts.max(initial=0)) // 2)


def _peak(network: CostNetwork, chosen: list[int]) -> int:
    delta = np.zeros(64, dtype=np.int64)
    for own, x in zip(network.usages, chosen, strict=True):
        for u in own:
            delta[u.start] += u.amounts[x]
            delta[u.stop] -= u.amounts[x]
    return int(np.cumsum(delta).max())


def _limited(rng: np.random.Generator, network: CostNetwork) -> CostNetwork:
    """A limit between what is held at least and what is held at most, mostly near the lower end."""
    times = sorted({t for own in network.usages for u in own for t in (u.start, u.stop)})
    least = most = 0
    for t in times:
        live = [u for own in network.usages for u in own if u.start <= t < u.stop]
        least = max(least, sum(int(u.amounts.min()) for u in live))
        most = max(most, sum(int(u.amounts.max()) for u in live))
    limit = least + int((most - least) * rng.random() ** 2)
    return CostNetwork(network.costs, network.edges, network.usages, limit)
