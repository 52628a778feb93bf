"""What the compiled functions of the solver come to on small networks, as text that can be compared.

Run as a script it prints them; with NUMBA_DISABLE_JIT=1 the same functions run as Python.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from solver_cases import hard_network, layered_network, random_network

from autoshard.solver import CostNetwork, evaluate
from autoshard.solver.completion import Completion
from autoshard.solver.contest.scan import read_object
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.fixing import Part, reduced_costs, restrict
from autoshard.solver.dual.flat import Flat, flatten
from autoshard.solver.dual.settling import Stop
from autoshard.solver.local import search
from autoshard.solver.local.annealed import annealed_from
from autoshard.solver.local.annealing import Heat, _run
from autoshard.solver.local.lookahead import decode_consistently
from autoshard.solver.reductions import reduce_network
from autoshard.solver.reductions.dominance import compiled_comparison
from autoshard.solver.work import Infeasible, from_network

DIGITS = 9
"""Prices come out of exponentials and roots, whose last digits differ between libraries."""
TEXTS = [
    b'{"a": [[1, -2], [], [30]], "b": {"c": [], "d": null}, "e": "x", "f": 7}',
    b'{"a": [[123456789012345678], [9999999999999999999999]]}',
    *(b'{"a": %b}' % text for text in (b"[[1,]]", b"[[01]]", b"[[-]]", b"[[1] [2]]", b"[1]", b"[[[1]]]", b"[[1]")),
    *(b'{"a": %b}' % text for text in (b"[[-9999999999999999999]]", b"[,[1]]", b"[[1 2]]", b"[[1]],", b"[[1.5]]")),
]


def limited(network: CostNetwork, share: float) -> CostNetwork:
    peak = evaluate(network, [0] * network.n_nodes).peak
    return CostNetwork(network.costs, network.edges, network.usages, int(peak * share), network.facets)


def networks() -> list[tuple[str, CostNetwork]]:
    """With and without limits and forbidden pairs; the last ones are past what search repairs easily."""
    return [
        *((f"random {seed}", random_network(seed, nodes=9, states=5, forbidden=0.1)) for seed in range(12)),
        *((f"layered {seed}", limited(layered_network(seed, layers=24), 0.3)) for seed in range(2)),
        *((f"hard {seed}", hard_network(seed, nodes=50, states=6, forbidden=0.5, room=1.1)) for seed in range(3)),
        ("tight", hard_network(7, nodes=60, states=5, forbidden=0.7, room=1.0)),
        ("slots", hard_network(8, nodes=220, states=4, forbidden=0.1, room=1.02)),
        ("star", star(420)),
    ]


def star(leaves: int) -> CostNetwork:
    """A hub with more edges than trees go through at once; the ring of its neighbours is no tree."""
    from autoshard.solver import Edge, Usage

    rng = np.random.default_rng(3)
    costs = [rng.integers(0, 50, 3) for _ in range(leaves + 1)]
    pairs = [(0, k) for k in range(1, leaves + 1)] + [(k, k + 1) for k in range(1, leaves, 2)]
    edges = [Edge(i, j, rng.integers(0, 50, (3, 3))) for i, j in pairs]
    usages = [[Usage(k % 9, k % 9 + 4, rng.integers(0, 20, 3))] for k in range(leaves + 1)]
    return CostNetwork(costs, edges, usages, 5 * leaves)


def listed(*values: Any) -> list[Any]:
    """Arrays as lists; floats keep all of their digits."""
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]


def rounded(values: np.ndarray) -> list[str]:
    return [f"{x:.{DIGITS}g}" for x in values.tolist()]


def bounds(flat: Flat, prices: np.ndarray) -> tuple[duals.Dual, list[Any]]:
    """Passes at given prices, whose sums are exact, and what they leave."""
    dual = duals.start(flat)
    if flat.limit is not None:
        duals.set_prices(dual, prices)
    found: list[Any] = []
    for forward in (True, False) * 4:
        chosen = duals.run_pass(dual, forward)
        found.append(listed(dual.last, chosen))
    found.append(listed(dual.to_first, dual.to_second, dual.prices, dual.priced))
    reduced = reduced_costs(dual)
    found.append(listed(reduced.bound, reduced.reach, *duals.reparametrise(dual)))
    some = reduced.reach <= np.median(reduced.reach)
    found.append(listed(make_consistent(flat, some), some))
    coarse = duals.start(flat)
    coarse.quantum = 2.0**-50  # too fine: sums are not exact until passes have made it coarser
    stop = Stop(threshold=1e9, cheap=1e9, least=2, looked_at=2, gain=0.001)
    decoded, worth = duals.settle(coarse, duals.no_prices(flat.slots), 3, stop)
    found.append(listed(decoded, worth, coarse.quantum))
    return dual, found


def priced(dual: duals.Dual, chosen: np.ndarray) -> list[Any]:
    """Steps of the prices from none at all, through their magnitude, to some that are moved."""
    flat = dual.flat
    live = duals.usage(flat, chosen)
    live[0] = flat.limit + 1
    dual.last = 1000.0
    prices = duals.first_prices(dual, live)
    out = []
    for step in range(60):
        dual.last += (3.0, -2.0, -30.0)[step % 3] if step < 45 else 1.0
        duals.adjust_prices(dual, prices, live)
        out.append(
            [rounded(prices.slots.current), prices.pace.scale, prices.pace.idle, f"{prices.pace.rate:.{DIGITS}g}"]
        )
    return out


def searched(flat: Flat, prices: np.ndarray, chosen: np.ndarray) -> list[Any]:
    """Local search from a decoding: repair, then descent and trees of several sizes at several prices."""
    field = search.field_for(flat, 3)
    prefix = search.prefix_of(prices)
    found: list[Any] = []

    def state() -> list[Any]:
        return listed(field.chosen, field.live, field.blocks, field.random_state)

    for start in (chosen, search.least_memory(field)):
        search.place(field, start)
        if not np.isfinite(search.cost(field)):
            found += [search.resolve(field, prices, 4, lambda: None), state()]
        if np.isfinite(search.cost(field)):
            found += [search.repair(field, prices, 4), search.descend(field, prefix), state()]
            for size in (3, 20, 400):
                for scales, judge in (((0.0, 1.3), 0.0), ((1.0, 1.0), 1.0)):
                    search.trees(field, prefix, 15, size, scales=scales, judge=judge)
                    found += [search.cost(field), state()]
    assert (field.tree.member == -1).all()
    return found


def heated(network: CostNetwork) -> list[Any]:
    """Short runs of annealing: where all nodes decide, and where half of them follow."""
    found: list[Any] = []
    for decisions in (network.n_nodes, network.n_nodes // 2):
        best, random_state = np.zeros(network.n_nodes, dtype=np.int64), np.array([7], dtype=np.uint64)
        cost = _run(annealed_from(network, decisions), best, Heat(300, 900.0, 9.0, 9e4, 3e3), random_state)
        found.append([str(float(cost[0])), *listed(best, random_state)])
    return found


def results() -> dict[str, Any]:
    """Per network and per function what comes out."""
    out: dict[str, Any] = {}
    for name, network in networks():
        try:
            work = from_network(network)
        except Infeasible:
            continue
        flat = flatten(work)
        alive = np.ones(len(flat.unary), dtype=bool)
        fine = make_consistent(flat, alive)
        if not fine or not len(flat.first):
            out[name] = listed(fine, alive)
            continue
        part = restrict(Part(duals.start(flat), np.arange(len(flat.unary))), alive)
        flat = part.flat
        rng = np.random.default_rng(1)
        prices = rng.integers(0, 64, flat.slots) / 64.0  # sums of such fractions are exact
        dual, found = bounds(flat, prices)
        chosen = duals.run_pass(dual, False)
        found += listed(part.origin, decode_consistently(dual))
        found.append(searched(flat, prices, chosen))
        if flat.limit is not None:
            found.append(priced(dual, chosen))
            found.append(heated(network))
        node = max(work.nodes(), key=lambda i: len(work.tables[i]))
        found += listed(compiled_comparison(work.cost(node), list(work.tables[node].values())))
        reduced = work.copy()
        try:
            reduce_network(reduced)
            small = flatten(reduced)
            found += listed(Completion(reduced, small, network.n_nodes).complete(np.zeros(small.n, dtype=np.int64)))
        except Infeasible as why:
            found.append(str(why))
        out[name] = found
    for text in TEXTS:
        read = read_object(text)
        out[text.decode()] = None if read is None else {k: repr(v) for k, v in read.items()}
    return out


if __name__ == "__main__":
    with np.errstate(over="ignore"):  # random numbers are products modulo 2**64
        json.dump(results(), sys.stdout)
