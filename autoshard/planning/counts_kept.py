"""Counts of reshards that a plan keeps although nobody counted: most limits are far from what good plans need.

The node for every reshard that is counted (`formulation.counts`) makes a network twice as large, keeps repeated layers
apart and leaves reductions next to nothing to do. So the problem is first decided without its counts. Where that plan
keeps them it is the answer: no plan that keeps them costs less than the best of all plans, and the proof of that bound,
on the network without the counts, is one for the problem with them as well. The same holds of stages: what each of them
keeps is had by the last plan, which keeps the counts, and where the optimum of each stage keeps them it is the optimum
of the stage with them.
"""

from autoshard.constraints.statement import MostReshards
from autoshard.planning.decision import Decision
from autoshard.planning.problem import Problem
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule, Use
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.steps import Reshard


def keeps_counts(problem: Problem, decision: Decision) -> bool:
    """Whether a decision keeps the stated counts of reshards: its plan, and all plans that it was built from."""
    return all(has_few_reshards(problem, schedule) for schedule in (decision.schedule, *decision.on_the_way))


def has_few_reshards(problem: Problem, schedule: Schedule) -> bool:
    """Whether a schedule keeps the stated counts of reshards."""
    mesh, program = problem.mesh, problem.program
    stated = [most for r in problem.restrictions if (most := r.most_reshards) is not None]
    return all(reshards_counted(most, schedule, program, mesh) <= most.limit for most in stated)


def reshards_counted(most: MostReshards, schedule: Schedule, program: Program, mesh: AtomMesh) -> int:
    """How many reshards of a schedule a limit counts: those of uses, and of forms that several uses share."""
    atoms = frozenset(a for name in most.axes for a in mesh.atoms_named(name)) if most.axes else None

    def moves(reshard: Reshard) -> bool:
        return any(atoms is None or not atoms.isdisjoint(step.atoms) for step in reshard.steps)

    served: dict[int, list[Use | None]] = {}
    for use in schedule.uses:
        served.setdefault(use.value_in(program), [None]).append(use)
    alone = sum(moves(way) and most.counts(use.value_in(program), use) for use, way in schedule.uses.items())
    return alone + sum(
        moves(way) and any(most.counts(value, use) for use in served.get(value, [None]))
        for value, way in schedule.shared.items()
    )
