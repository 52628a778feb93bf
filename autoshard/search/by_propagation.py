"""Shardy's ladder as a strategy: statements are propagated, and the placement of every op follows from its tensors.

Inputs, outputs and values that cross loops have their propagated shardings too. Open are only the reshards between
them: which reshard, all-reduce or reduce-scatter, and what a conflict rule leaves to the solver.
"""

from collections.abc import Mapping

import numpy as np

from autoshard.formulation.model import NodeKind
from autoshard.planning import Model, Problem
from autoshard.planning.spread import spread
from autoshard.propagation import Propagated
from autoshard.search.placing import Conflicts, Placing, allowed_states, placed_states, stored_states


def propagated(problem: Problem, ladder: str) -> Propagated:
    """Shardings of all values: the statements of a problem propagated by one rung (``basic`` to ``user-priority``)."""
    return spread(problem.program, problem.mesh, problem.pins, problem.groups, problem.restrictions, ladder)


def left_by_propagation(model: Model, ladder: str, conflicts: Conflicts) -> list[np.ndarray]:
    """Per node of the model's network, the states that propagation of the statements leaves."""
    return left_by_found(model, propagated(model.problem, ladder), conflicts)


def left_by_found(
    model: Model, found: Propagated, conflicts: Conflicts, stated: Mapping[int, np.ndarray] | None = None
) -> list[np.ndarray]:
    """Per node of the model's network, the states that these shardings leave.

    stated: states by number of the node, for nodes that are settled otherwise.
    """
    program, mesh = model.problem.program, model.problem.mesh
    placing = Placing(program, mesh, found.values, conflicts)
    ops = program.ops
    slots = {name: k for k, name in enumerate(program.output_names)}

    def wanted(index: int) -> np.ndarray | None:
        node = model.collected.nodes[index]
        if stated is not None and index in stated:
            return stated[index]
        if node.kind is NodeKind.OP:
            assert node.op is not None
            return placed_states(model, index, *placing.of(ops[node.op]))
        if node.kind is NodeKind.HUB or node.value is None:
            return None
        sharding = found.values.get(node.value)
        if node.kind is NodeKind.OUTPUT:
            sharding = found.outputs.get(slots.get(node.label, -1), sharding)
        return None if sharding is None else stored_states(model, index, sharding)

    return allowed_states(model, wanted)
