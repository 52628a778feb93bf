"""Sharding groups in the network: edges that cost nothing between equal layouts and forbid all others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoshard.constraints import MatchedGroup
from autoshard.constraints.statement import Member, name_of
from autoshard.errors import UnsupportedError
from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded
from autoshard.formulation.model import NodeKind, Port
from autoshard.program.program import Program
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.solver.network import IMPOSSIBLE, Edge


def with_groups(
    encoded: Encoded,
    collected: Collected,
    program: Program,
    mesh: AtomMesh,
    groups: Sequence[MatchedGroup],
    ties: Mapping[int, int],
) -> Encoded:
    """The encoding in which members of each group have equal layouts.

    Inputs count with the layout they are stored in, outputs with the one they are handed back in, other values with the
    form that their uses share. ties: output slot -> donated input that it replaces. An output that replaces an input
    which is padded has the even part of its layout.
    """
    costs, edges = list(encoded.network.costs), list(encoded.network.edges)
    for node, value in collected.even_ends:
        port = collected.definition[value]
        shape = program.type_of(value).shape
        rows = [layout.even_part(shape, mesh) for layout in _kept(port, encoded)]
        cols = _kept(Port(node, collected.nodes[node].layouts), encoded)
        table = np.array([[0 if row == col else IMPOSSIBLE for col in cols] for row in rows], np.int64)
        if table.any():
            edges.append(Edge(port.node, node, table))
    for group in groups:
        ports = [_port(member, collected, program, ties) for member in group.members]
        first = ports[0]
        for other in ports[1:]:
            rows, cols = _kept(first, encoded), _kept(other, encoded)
            labels: dict[object, int] = {}
            ids = [np.array([labels.setdefault(lay, len(labels)) for lay in side], np.int64) for side in (rows, cols)]
            table = np.where(ids[0][:, None] == ids[1][None, :], 0, IMPOSSIBLE).astype(np.int64)
            if first.node == other.node:
                diagonal = np.diagonal(table)
                costs[first.node] = np.where(diagonal >= IMPOSSIBLE, IMPOSSIBLE, costs[first.node])
            elif table.any():
                edges.append(Edge(first.node, other.node, table))
    unpriced = encoded.unpriced + len(edges) - len(encoded.network.edges)
    network = replace(encoded.network, costs=tuple(costs), edges=tuple(edges))
    return replace(encoded, network=network, unpriced=unpriced)


def _kept(port: Port, encoded: Encoded) -> list[Layout]:
    return [port.layouts[k] for k in encoded.states[port.node]]


def member_port(member: Member, collected: Collected, program: Program, ties: Mapping[int, int]) -> Port | None:
    """The port that decides the layout of a member; None for literals and values inside of a shard_map."""
    kind, index = member
    if kind == "output":
        name = program.output_names[index]
        for number, node in enumerate(collected.nodes):
            if node.kind is NodeKind.OUTPUT and node.label == name:
                return Port(number, node.layouts)
        if index in ties:
            return collected.definition[ties[index]]
    elif index in collected.definition:
        return (collected.definition if index in program.body.args else collected.form)[index]
    return None


def _port(member: Member, collected: Collected, program: Program, ties: Mapping[int, int]) -> Port:
    port = member_port(member, collected, program, ties)
    if port is None:
        raise UnsupportedError(
            f"{name_of(member, program)} is in a sharding group, but nothing is decided about it: it is a literal or "
            "lies inside of a shard_map of the program"
        )
    return port
