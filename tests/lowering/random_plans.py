"""Plans drawn at random from all that the planner considers: any states of its network that may stand together.

They are far from the best ones and legal in every respect, so that the independent checker must accept them too.
"""

from random import Random
from typing import Any

import numpy as np

from autoshard.api.plans import Plan
from autoshard.costmodels import load_profile, place_mesh
from autoshard.costs.memory import simulate
from autoshard.costs.price import price
from autoshard.frontends.jax.function import TracedFunction
from autoshard.planning import Model, Problem, build_model
from autoshard.sharding.layout import AtomMesh
from autoshard.solver.network import IMPOSSIBLE

TRIES = 60


def random_assignment(model: Model, random: Random) -> tuple[int, ...] | None:
    """Node after node a state that fits the neighbours chosen before; None where that leads nowhere again and again."""
    network = model.repeats.network
    near: list[list[tuple[int, Any]]] = [[] for _ in network.costs]
    for edge in network.edges:
        near[edge.first].append((edge.second, edge.costs))
        near[edge.second].append((edge.first, edge.costs.T))
    for _ in range(TRIES):
        chosen: dict[int, int] = {}
        for node, costs in enumerate(network.costs):
            free = costs < IMPOSSIBLE
            for other, table in near[node]:
                if other in chosen:
                    free = free & (table[:, chosen[other]] < IMPOSSIBLE)
            states = np.flatnonzero(free)
            if not len(states):
                break
            chosen[node] = int(random.choice(states.tolist()))
        if len(chosen) == network.n_nodes:
            return tuple(chosen[n] for n in range(network.n_nodes))
    return None


def random_plan(traced: TracedFunction, mesh: AtomMesh, seed: int) -> Plan | None:
    """A plan with everything that a solved one has; no bound."""
    axes = dict(zip(mesh.mesh.axis_names, mesh.mesh.axis_sizes, strict=True))
    splits = {name: [mesh.sizes[a] for a in atoms] for name, atoms in mesh.atoms_of.items()}
    machine = place_mesh(load_profile("cpu_sim"), axes, None)
    problem = Problem.make(traced.program, mesh.mesh, machine, sub_axes=splits)
    model = build_model(problem)
    assignment = random_assignment(model, Random(seed))
    if assignment is None:
        return None
    schedule = model.schedule(assignment)
    cost = price(traced.program, schedule, model.fusion, model.prices)
    memory = simulate(traced.program, schedule, model.liveness)
    extra = model.memory_price_s(assignment)
    return Plan(
        program=traced.program,
        schedule=schedule,
        machine=machine,
        cost=cost,
        memory=memory,
        status="feasible",
        objective_s=cost.step_s + extra,
        bound_s=0.0,
        gap=1.0,
        memory_price_s=extra,
        rounding_s=model.encoded.rounding_s,
        traced=traced,
    )
