"""Bounds leave less and less: what is cut off is no better than the target, and branching ends with the optimum."""

import math

import numpy as np
from solver_cases import hard_network, layered_network, optimum, random_network

from autoshard.solver import evaluate, solve
from autoshard.solver.certify.tree import Tree
from autoshard.solver.certify.weigh import Whole
from autoshard.solver.dual import passes as duals
from autoshard.solver.dual.consistent import make_consistent
from autoshard.solver.dual.fixing import Part, reduced_costs, restrict
from autoshard.solver.dual.flat import flatten
from autoshard.solver.work import Infeasible, from_network


def root_of(network):
    work = from_network(network)
    flat = flatten(work)
    return work, Part(duals.start(flat), np.arange(len(flat.unary)))


def limited(seed: int):
    """A random network with a limit that binds where the seed gives it memory, and with consistent edges."""
    network = random_network(seed, nodes=6, states=3, forbidden=0.05)
    try:
        work, part = root_of(network)
    except Infeasible:
        return None
    alive = np.ones(len(part.flat.unary), dtype=bool)
    if work.limit is None or not make_consistent(part.flat, alive):
        return None
    return network, work, restrict(part, alive)


def test_reduced_costs_never_cut_the_optimum():
    seen = 0
    for seed in range(500):
        case = limited(seed)
        best = optimum(case[0]) if case else None
        if best is None:
            continue
        seen += 1
        _, work, part = case
        for _ in range(20):
            duals.run_pass(part.dual, True)
            duals.run_pass(part.dual, False)
        found = reduced_costs(part.dual)
        assert work.constant + found.bound <= best, seed
        alive = found.reach <= best - work.constant - found.bound
        assert make_consistent(part.flat, alive), seed
        smaller = restrict(part, alive)
        for _ in range(5):
            duals.run_pass(smaller.dual, True)
            duals.run_pass(smaller.dual, False)
        assert work.constant + smaller.dual.bound <= best, seed
    assert seen > 30


def test_branching_ends_with_the_optimum():
    seen = 0
    for seed in range(500):
        case = limited(seed)
        best = optimum(case[0]) if case else None
        if best is None:
            continue
        seen += 1
        network, work, part = case
        found = [math.inf]

        def offer(states, network=network, work=work, part=part, found=found):
            choice = {
                int(n): int(work.domains[n][x - low])
                for n, x, low in zip(part.flat.nodes, part.origin[states], flatten(work).offsets, strict=False)
            }
            whole = work.complete(choice)
            result = evaluate(network, [whole[i] for i in range(network.n_nodes)])
            if result.feasible:
                found[0] = min(found[0], result.cost)

        whole = Whole.of(part.flat)
        assert whole is not None
        tree = Tree(whole, lambda found=found, work=work: min(found[0], 10**9) - work.constant, offer, lambda: None)
        tree.begin(Part(duals.start(part.flat), np.arange(len(part.flat.unary))), None)
        assert tree.run(10**8), seed
        assert found[0] == best, seed
        assert tree.bound >= best - work.constant, seed
    assert seen > 30


def test_a_part_keeps_every_assignment_of_what_it_keeps():
    network = layered_network(4, layers=12)
    _, part = root_of(network)
    rng = np.random.default_rng(0)
    alive = rng.random(len(part.flat.unary)) < 0.6
    alive[part.flat.offsets[:-1]] = True
    assert make_consistent(part.flat, alive)
    smaller = restrict(part, alive)
    for _ in range(20):
        chosen = np.array([rng.integers(d) for d in smaller.flat.sizes])
        whole = smaller.positions(chosen) - part.flat.offsets[:-1]
        assert duals.flat_cost(smaller.flat, chosen) == duals.flat_cost(part.flat, whole)


def test_most_pairs_forbidden_and_little_room_still_gives_a_solution():
    for seed in range(2):
        network = hard_network(seed, nodes=200, forbidden=0.65, room=1.0)
        found = solve(network, effort=0.05)
        assert found.status in ("feasible", "optimal"), seed
        assert evaluate(network, found.assignment).feasible
