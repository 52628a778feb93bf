"""Plans drawn at random from all that the planner considers: any states of its network that may stand together.

They are far from the best ones and legal in every respect, so that the independent checker must accept them too.
"""

from random import Random

from plan_cases import random_assignment, unsolved_plan

from autoshard.api.plans import Plan
from autoshard.costmodels import load_profile, place_mesh
from autoshard.frontends.jax.function import TracedFunction
from autoshard.planning import Problem, build_model
from autoshard.sharding.layout import AtomMesh

TRIES = 60


def random_plan(traced: TracedFunction, mesh: AtomMesh, seed: int) -> Plan | None:
    """A plan with everything that a solved one has; no bound."""
    axes = dict(zip(mesh.mesh.axis_names, mesh.mesh.axis_sizes, strict=True))
    splits = {name: [mesh.sizes[a] for a in atoms] for name, atoms in mesh.atoms_of.items()}
    machine = place_mesh(load_profile("cpu_sim"), axes, None)
    problem = Problem.make(traced.program, mesh.mesh, machine, sub_axes=splits)
    model = build_model(problem)
    assignment = random_assignment(model.repeats.network, Random(seed), TRIES)
    return None if assignment is None else unsolved_plan(model, assignment, traced=traced)
