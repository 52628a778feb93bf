"""Decoding: a solution's choices become a `Schedule`."""

from collections.abc import Sequence

from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded
from autoshard.formulation.model import NodeKind, Port
from autoshard.program.program import Program
from autoshard.program.schedule import Placement, Schedule, Use
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.steps import Reshard


def decode(
    collected: Collected, encoded: Encoded, program: Program, mesh: AtomMesh, assignment: Sequence[int]
) -> Schedule:
    """The schedule that an assignment of the network stands for."""
    state = [int(kept[choice]) for kept, choice in zip(encoded.states, assignment, strict=True)]

    def layout(port: Port) -> Layout:
        return port.layouts[state[port.node]]

    placements: dict[int, Placement] = {}
    for index, node in enumerate(collected.nodes):
        if node.kind is NodeKind.OP:
            assert node.space is not None and node.op is not None
            placements[node.op] = node.space.placements[state[index]]
    definitions = {value: layout(port) for value, port in sorted(collected.definition.items())}
    shared: dict[int, Reshard] = {}
    uses: dict[Use, Reshard] = {}
    as_used: list[int] = []
    for number, link in enumerate(collected.links):
        source, target = layout(link.source), layout(link.target)
        way, forms = encoded.way_taken(number, link, state), collected.nodes[link.target.node].defined_in
        if link.use is None and forms is not None and forms[state[link.target.node]] is not None:
            way = way.taken_as_used
            as_used.append(link.value)
        reshard = encoded.table(program.type_of(link.value), way).path(source, target)
        if link.use is not None:
            uses[link.use] = reshard
        elif reshard.steps:
            shared[link.value] = reshard
    return Schedule(
        mesh,
        dict(sorted(placements.items())),
        definitions,
        dict(sorted(shared.items())),
        dict(sorted(uses.items())),
        frozenset(as_used),
    )
