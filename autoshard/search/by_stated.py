"""Shardings that the user wrote for arguments and results, as a strategy: the placement of ops follows by
propagation.
"""

from collections.abc import Iterator

import numpy as np

from autoshard.costs.host import output_layout
from autoshard.errors import ShardingError
from autoshard.formulation.domains import satisfies
from autoshard.formulation.model import NodeKind
from autoshard.planning import Model
from autoshard.planning.spread import spread
from autoshard.program.schedule import Schedule
from autoshard.search.by_propagation import left_by_found
from autoshard.search.placing import Conflicts
from autoshard.sharding.layout import Layout
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.strategies.stated import StatedShardings


def left_by_stated(model: Model, stated: StatedShardings) -> list[np.ndarray]:
    """Per node of the model's network, the states that the shardings and their propagation leave."""
    problem = model.problem
    propagated = spread(problem.program, problem.mesh, stated.pins, problem.groups, problem.restrictions)
    values, outputs = _ends(model, stated)
    slots = {name: k for k, name in enumerate(problem.program.output_names)}
    settled: dict[int, np.ndarray] = {}
    for index, node in enumerate(model.collected.nodes):
        pin: TensorSharding | None = None
        if node.kind is NodeKind.INPUT and node.value is not None:
            pin = values.get(node.value)
        elif node.kind is NodeKind.OUTPUT:
            pin = outputs.get(slots.get(node.label, -1))
        if pin is not None:
            kept = model.encoded.states[index]
            fits = [k for k, s in enumerate(kept) if satisfies(node.layouts[s], pin, problem.mesh)]
            settled[index] = np.array(fits, np.int64)
    return left_by_found(model, propagated, Conflicts.MAJORITY, settled)


def check_stated(model: Model, schedule: Schedule, stated: StatedShardings) -> None:
    """`ShardingError` where an argument or a result has another sharding in the schedule.

    That happens where repeated layers share the decision of the first one, or where carried state has one layout.
    """
    for name, wanted, layout in _lying(model, schedule, stated):
        if not satisfies(layout, wanted, model.problem.mesh):
            raise ShardingError(
                f"{name} cannot be {wanted} beside the plan's statements: it is {layout.text(model.problem.mesh)}, as "
                "carried state (carry=False lifts that) or as other layers are"
            )


def _ends(model: Model, stated: StatedShardings) -> tuple[dict[int, TensorSharding], dict[int, TensorSharding]]:
    args = set(model.problem.program.body.args)
    values = {v: pin.sharding for pin in stated.pins for v in pin.values if v in args}
    return values, {k: pin.sharding for pin in stated.pins for k in pin.outputs}


def _lying(model: Model, schedule: Schedule, stated: StatedShardings) -> Iterator[tuple[str, TensorSharding, Layout]]:
    program = model.problem.program
    values, outputs = _ends(model, stated)
    for value, wanted in values.items():
        yield program.values[value].name, wanted, schedule.definitions[value]
    for slot, wanted in outputs.items():
        if program.type_of(program.body.results[slot]).rank:
            yield program.output_names[slot], wanted, output_layout(schedule, slot)
