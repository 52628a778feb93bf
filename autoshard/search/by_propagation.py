"""Shardy's ladder as a strategy: the statements are propagated, and every op runs where they brought its tensors.

What propagation says of inputs, outputs and what crosses loops is kept too. Open are only the ways between: which
reshard, all-reduce or reduce-scatter, and what a conflict rule leaves to the solver.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoshard.constraints import MatchedPin
from autoshard.formulation.model import NodeKind
from autoshard.planning import Model, Problem
from autoshard.propagation import Propagated, propagate
from autoshard.search.placing import Conflicts, Placing, allowed_states, placed_states, stored_states
from autoshard.sharding.tensor_sharding import DimensionSharding, TensorSharding


def propagated(problem: Problem, ladder: str) -> Propagated:
    """The statements of a problem spread by a rung of the ladder (``basic`` to ``user-priority``)."""
    program = problem.program
    values: dict[int, TensorSharding] = {}
    outputs: dict[int, TensorSharding] = {}
    for pin in problem.pins:
        sharding = _with_priorities(pin)
        for value in pin.values:
            values[value] = joined(values[value], sharding) if value in values else sharding
        for slot in pin.outputs:
            outputs[slot] = joined(outputs[slot], sharding) if slot in outputs else sharding
    groups = [group.values for group in problem.groups if len(group.values) > 1]
    return propagate(program, problem.mesh.mesh, values, strategy=ladder, groups=groups, outputs=outputs)


def _with_priorities(pin: MatchedPin) -> TensorSharding:
    default = getattr(pin, "priority", 0)
    dims = tuple(
        replace(d, priority=default) if default and d.priority is None and (d.axes or not d.is_open) else d
        for d in pin.sharding.dims
    )
    return replace(pin.sharding, dims=dims)


def joined(one: TensorSharding, other: TensorSharding) -> TensorSharding:
    """What two shardings that agree say together (see `constraints.conflict`)."""

    def both(a: DimensionSharding, b: DimensionSharding) -> DimensionSharding:
        if a.is_open != b.is_open:
            return b if a.is_open else a
        return a if len(a.axes) >= len(b.axes) else b

    def union(a: Sequence, b: Sequence) -> tuple:
        return (*a, *(x for x in b if x not in a))

    dims = tuple(both(a, b) for a, b in zip(one.dims, other.dims, strict=True))
    return replace(
        one, dims=dims, replicated=union(one.replicated, other.replicated),
        unreduced=union(one.unreduced, other.unreduced),
    )  # fmt: skip


def left_by_propagation(model: Model, ladder: str, conflicts: Conflicts) -> list[np.ndarray]:
    """Per node of the model's network the states that propagation leaves."""
    problem = model.problem
    program, mesh = problem.program, problem.mesh
    found = propagated(problem, ladder)
    placing = Placing(program, mesh, found.values, conflicts)
    ops = program.ops
    slots = {name: k for k, name in enumerate(program.output_names)}

    def wanted(index: int) -> np.ndarray | None:
        node = model.collected.nodes[index]
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
