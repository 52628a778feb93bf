"""Named strategies priced in the same program: op placements and activations pinned, not inputs alone.

A baseline's statements are propagated over the program; every op may then only run where propagation put it, and inputs lie
as stated. What is left (which reshard, all-reduce or reduce-scatter) is solved, so a baseline is the best version of itself.
Its assignment is a start for the solver: a plan is never worse than a baseline under the same statements.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autoshard.costs.memory import simulate
from autoshard.errors import AutoshardError, InputError
from autoshard.formulation.model import NodeKind
from autoshard.formulation.collect import satisfies
from autoshard.plans import BaselineCost
from autoshard.planning import Model
from autoshard.propagation import Propagated, propagate
from autoshard.solver.network import CostNetwork, Edge, Usage
from autoshard.strategies.named import Roles, named_strategy, shardings


@dataclass(frozen=True)
class PricedBaseline:
    """cost for reports; assignment on the model's network (None where it cannot be)."""

    cost: BaselineCost
    assignment: tuple[int, ...] | None


def price_baselines(
    model: Model, names: Sequence[str], roles: Roles | None, *, progress: Callable[[str], None] | None = None
) -> list[PricedBaseline]:
    """Price each named baseline; one that cannot hold (memory, pins, divisibility) has no objective but a reason."""
    if names and not roles:
        raise InputError(
            "baselines need the logical axes of the inputs; models of the library have them, for your own function give "
            "logical_axes (config) or roles (Python), such as {'params/w1': ['embed', 'mlp'], 'batch/x': ['batch', None]}"
        )
    out = []
    for name in dict.fromkeys(names):
        if progress:
            progress(f"pricing baseline {name}")
        assert roles is not None
        out.append(_price(model, name, roles))
    return out


def _price(model: Model, name: str, roles: Roles) -> PricedBaseline:
    from autoshard.solver import solve

    def impossible(reason: str) -> PricedBaseline:
        return PricedBaseline(BaselineCost(name, None, None, reason), None)

    program, mesh = model.problem.program, model.problem.mesh
    strategy = named_strategy(name, mesh.mesh)
    statements, pins = shardings(strategy, program, mesh.mesh, roles)
    try:
        spread = propagate(program, mesh.mesh, statements)
        allowed = _allowed(model, spread, pins)
    except AutoshardError as error:
        return impossible(str(error))
    for cls, keep in enumerate(allowed):
        if not len(keep):
            node = model.collected.nodes[model.repeats.representative(cls)]
            return impossible(f"the statements leave no layout for {node.kind.value} {node.label}")
    limit = model.problem.memory_limit
    solution = solve(restrict(model.with_limit(limit), allowed))
    if solution.assignment is None:
        return impossible(solution.reason or f"no assignment was found ({solution.status})")
    assignment = tuple(int(keep[choice]) for keep, choice in zip(allowed, solution.assignment, strict=True))
    schedule = model.schedule(assignment)
    memory = simulate(program, schedule, model.liveness)
    if limit is not None and memory.peak_bytes > limit:
        return impossible(f"it holds {memory.peak_bytes} bytes at {memory.where}, the limit is {limit}")
    assert solution.cost is not None
    return PricedBaseline(BaselineCost(name, solution.cost * model.encoded.tick_s, memory.peak_bytes), assignment)


def restrict(network: CostNetwork, allowed: Sequence[np.ndarray]) -> CostNetwork:
    """The network with only some strategies per node (indices into the old ones)."""
    edges = tuple(Edge(e.first, e.second, e.costs[np.ix_(allowed[e.first], allowed[e.second])]) for e in network.edges)
    usages = tuple(
        tuple(Usage(u.start, u.stop, u.amounts[keep]) for u in us) for us, keep in zip(network.usages, allowed, strict=False)
    )
    facets = tuple(None if f is None else f[keep] for f, keep in zip(network.facets, allowed, strict=False))
    costs = tuple(c[keep] for c, keep in zip(network.costs, allowed, strict=True))
    return CostNetwork(costs, edges, usages, network.usage_limit, facets)


def _allowed(model: Model, spread: Propagated, pins: dict) -> list[np.ndarray]:
    """Per node of the model's network the strategies that the baseline leaves."""
    mesh = model.problem.mesh
    classes: list[np.ndarray | None] = [None] * model.repeats.network.n_nodes
    for index, node in enumerate(model.collected.nodes):
        kept = model.encoded.states[index]
        cls = int(model.repeats.class_of[index])
        keep = np.arange(len(kept))
        if node.kind is NodeKind.OP:
            assert node.op is not None
            keep = _placed(model, index, spread.factors.get(node.op))
        elif node.kind is NodeKind.INPUT and node.value in pins:
            pin = pins[node.value]
            keep = np.array([k for k, s in enumerate(kept) if satisfies(node.layouts[s], pin, mesh)], np.int64)
        held = classes[cls]
        both = keep if held is None else np.intersect1d(held, keep)
        classes[cls] = both if held is None or len(both) else held
    return [c if c is not None else np.zeros(0, np.int64) for c in classes]


def _placed(model: Model, index: int, factors: tuple | None) -> np.ndarray:
    """Strategies of an op whose factors lie as propagated; axes that do not divide a factor are dropped from it."""
    node, mesh = model.collected.nodes[index], model.problem.mesh
    space = node.space
    assert space is not None
    kept = {int(s): k for k, s in enumerate(model.encoded.states[index])}
    wanted = []
    for f in range(space.shards.shape[1]):
        axes = factors[f] if factors is not None else ()
        try:
            wanted.append([a for ref in axes for a in mesh.atoms_for(ref) if mesh.sizes[a] > 1])
        except AutoshardError:
            wanted.append([])
    while True:
        states = space.by_factors.get(tuple(map(tuple, wanted)), [])
        found = [kept[s] for s in states if s in kept]
        if found or not any(wanted):
            return np.array(found, np.int64)
        longest = max(range(len(wanted)), key=lambda f: (len(wanted[f]), f))
        wanted[longest].pop()
