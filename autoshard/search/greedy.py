"""Cheapest op first: ops are placed one after the other, each where it costs least beside those placed before.

What an op costs is its own seconds and, for every tensor, the cheapest way to and from the ops placed already, with
the form that is shared and what is still open at their best. Of the ops that share a tensor with placed ones the one
whose best placement is cheapest goes next, and is never moved again. The ways between are then solved exactly.
(Without regard to neighbours, tiny ops all over the program go first, each its own way: 50 times the cost in a train
step of Llama 3 8B, against 1.1 times.)
"""

import heapq

import numpy as np

from autoshard.formulation.model import NodeKind
from autoshard.planning import Model
from autoshard.solver.network import IMPOSSIBLE, CostNetwork


def left_by_greedy(model: Model) -> list[np.ndarray]:
    """Per node of the model's network the states that are left: one for every op, all for the rest."""
    network = model.repeats.network
    nodes = model.collected.nodes
    is_op = np.zeros(network.n_nodes, bool)
    for index, node in enumerate(nodes):
        if node.kind is NodeKind.OP:
            is_op[model.repeats.class_of[index]] = True
    chosen = place_cheapest_first(network, is_op)
    return [np.array([chosen[n]]) if n in chosen else np.arange(len(c)) for n, c in enumerate(network.costs)]


def place_cheapest_first(network: CostNetwork, is_op: np.ndarray) -> dict[int, int]:
    """Node -> state for all nodes marked in `is_op`, cheapest first, those next to placed ones before the others."""
    around: list[list[tuple[int, np.ndarray]]] = [[] for _ in network.costs]
    for edge in network.edges:
        around[edge.first].append((edge.second, edge.costs))
        around[edge.second].append((edge.first, edge.costs.T))
    # costs of every state given what is placed; sums of impossible ones stay far above all others
    given = [np.minimum(c, IMPOSSIBLE).astype(np.float64) for c in network.costs]
    chosen: dict[int, int] = {}
    version = [0] * network.n_nodes

    def scores(node: int) -> np.ndarray:
        total = given[node].copy()
        for other, table in around[node]:
            if other not in chosen:
                ahead = 0.0 if is_op[other] else given[other][None, :]
                total += (table + ahead).min(axis=1)
        return total

    heap = [
        (True, float(scores(n).min()), n, 0) for n in np.flatnonzero(is_op).tolist()
    ]  # first: apart from all placed
    heapq.heapify(heap)
    while heap:
        _, _, node, seen = heapq.heappop(heap)
        if node in chosen or seen != version[node]:
            continue
        state = int(scores(node).argmin())
        chosen[node] = state
        stale: dict[int, None] = {}
        for other, table in around[node]:
            given[other] = given[other] + table[state]
            stale[other] = None
            if not is_op[other]:
                stale.update(dict.fromkeys(far for far, _ in around[other]))
        for other in stale:
            if is_op[other] and other not in chosen:
                version[other] += 1
                heapq.heappush(heap, (False, float(scores(other).min()), other, version[other]))
    return chosen
