"""Outputs in the layouts of the inputs that they replace, and the pins that make them otherwise."""

from collections.abc import Sequence

from autoshard.constraints.groups import MatchedGroup, spread_pins
from autoshard.constraints.pin import MatchedPin
from autoshard.program.program import Program
from autoshard.sharding.layout import AtomMesh


def own_outputs(pins: Sequence[MatchedPin]) -> frozenset[int]:
    """Output slots with a pin of their own: they do not take the layouts of the inputs that they replace."""
    return frozenset(slot for pin in pins for slot in pin.outputs)


def padded_inputs(
    pins: Sequence[MatchedPin], groups: Sequence[MatchedGroup], program: Program, mesh: AtomMesh
) -> frozenset[int]:
    """Inputs that pins, their own or by a group, cut by axes that do not divide them; their outputs are cut evenly."""
    inputs = frozenset(program.body.args)
    return frozenset(
        value
        for pin in (*pins, *spread_pins(pins, groups, program))
        for value in inputs.intersection(pin.values)
        for size, dim in zip(program.type_of(value).shape, pin.sharding.dims, strict=True)
        if size % mesh.size([a for axis in dim.axes for a in mesh.atoms_for(axis)])
    )
