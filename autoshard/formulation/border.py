"""Inputs that JAX has otherwise than planned, in the network: the seconds of cutting them (see `costs.border`)."""

from math import prod

import numpy as np

from autoshard.costs.exposure import Exposure
from autoshard.costs.host import read_on_device
from autoshard.costs.pricing import StepPrices
from autoshard.formulation.collect import Collected
from autoshard.program.program import Program
from autoshard.program.types import TensorType
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import sliced


def price_border(
    collected: Collected, program: Program, mesh: AtomMesh, prices: StepPrices, exposure: Exposure
) -> None:
    """Add the seconds of cutting blocks out of inputs that are pinned unevenly to the nodes of these inputs."""
    known: dict[object, np.ndarray] = {}
    for value in read_on_device(program):
        stored, port = collected.stored.get(value), collected.definition[value]
        if stored is None:
            continue
        type_, node = program.type_of(value), collected.nodes[port.node]
        key = type_, id(stored.layouts), id(port.layouts)  # of inputs that are alike
        if key not in known:
            ends = zip(stored.layouts, port.layouts, strict=True)
            known[key] = np.array([_cut_s(type_, before, after, mesh, prices) for before, after in ends])
        node.costs = node.costs + known[key] * (exposure.rest * node.weight)


def _cut_s(type_: TensorType, layout: Layout, target: Layout, mesh: AtomMesh, prices: StepPrices) -> float:
    seconds, element = 0.0, type_.bytes / max(1, type_.elements)
    for step in sliced(layout, target).steps:
        layout = step.apply(layout)
        size = prod(layout.local_shape(type_.shape, mesh)) * element
        seconds += prices.step_s(step.kind, step.atoms, size, size)
    return seconds
