"""Host memory and other orders of the devices in the network.

They add seconds over the host link, a limit on what the host holds for each device, and seconds of permutes from and to
other orders of the devices.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from autoshard.costs.exposure import Exposure
from autoshard.costs.host import brought, held_on_host, sent
from autoshard.costs.orders import order_permutes
from autoshard.costs.pricing import StepPrices
from autoshard.errors import InfeasibleError
from autoshard.formulation.collect import Collected
from autoshard.formulation.encode import Encoded
from autoshard.formulation.model import NodeKind, Port
from autoshard.formulation.repeats import Repeats
from autoshard.program.program import Program
from autoshard.program.schedule import PROGRAM
from autoshard.sharding.layout import AtomMesh
from autoshard.solver.network import CostNetwork, Usage

Amounts = Sequence[np.ndarray | None]
"""For each node of a network the bytes that its states hold on the host; None where it holds nothing there."""


def price_host(
    collected: Collected,
    program: Program,
    mesh: AtomMesh,
    ties: Mapping[int, int],
    prices: StepPrices,
    exposure: Exposure,
) -> None:
    """Add the seconds of copies between host and device to the nodes whose layouts decide how much is copied."""
    for value in brought(program):
        port = collected.stored.get(value, collected.definition[value])
        _add(collected, port, _bytes(port, program, value, mesh), prices, exposure.rest)
    for slot in sent(program):
        port = _output_port(collected, program, ties, slot)
        _add(collected, port, _bytes(port, program, program.body.results[slot], mesh), prices, exposure.rest)


def price_orders(
    collected: Collected,
    program: Program,
    mesh: AtomMesh,
    ties: Mapping[int, int],
    prices: StepPrices,
    exposure: Exposure,
) -> None:
    """Add the seconds of permutes to and from other orders of the devices; they are the same for every state."""
    for permute in order_permutes(program, mesh, prices):
        if permute.order.where == "output":
            port = _output_port(collected, program, ties, permute.order.index)
        else:
            port = collected.definition[permute.value]
        node = collected.nodes[port.node]
        share = exposure.share_of("permute", permute.value, PROGRAM)
        seconds = exposure.counted_s(prices, "permute", permute.atoms, permute.bytes, permute.seconds, share)
        node.costs = node.costs + seconds * node.weight


def _add(collected: Collected, port: Port, amounts: np.ndarray, prices: StepPrices, rest: float) -> None:
    node = collected.nodes[port.node]
    seconds = np.array([prices.machine.host_copy_s(float(b)) for b in amounts])
    node.costs = node.costs + seconds * (rest * node.weight)


def _bytes(port: Port, program: Program, value: int, mesh: AtomMesh) -> np.ndarray:
    type_ = program.type_of(value)
    element = type_.bytes / max(1, type_.elements)
    return np.array([np.prod(lay.local_shape(type_.shape, mesh), dtype=float) * element for lay in port.layouts])


def _output_port(collected: Collected, program: Program, ties: Mapping[int, int], slot: int) -> Port:
    """The port that decides the layout of an output: a node of its own, or the input that the output replaces."""
    name = program.output_names[slot]
    for number, node in enumerate(collected.nodes):
        if node.kind is NodeKind.OUTPUT and node.label == name:
            return Port(number, node.layouts)
    return collected.definition[ties[slot]]


def host_amounts(
    collected: Collected, encoded: Encoded, repeats: Repeats, program: Program, mesh: AtomMesh, ties: Mapping[int, int]
) -> Amounts:
    """Bytes on the host by state, for the nodes of the quotient network."""
    out: list[np.ndarray | None] = [None] * repeats.network.n_nodes
    inputs, slots = held_on_host(program)
    ports = [(collected.stored.get(v, collected.definition[v]), v) for v in inputs]
    ports += [(_output_port(collected, program, ties, k), program.body.results[k]) for k in slots]
    for port, value in ports:
        own = np.ceil(_bytes(port, program, value, mesh))[encoded.states[port.node]].astype(np.int64)
        cls = int(repeats.class_of[port.node])
        known = out[cls]
        out[cls] = own if known is None else known + own
    return tuple(out)


def check_host(amounts: Amounts, limit: int) -> None:
    """Raise `InfeasibleError` where the host holds more than `limit` bytes under every assignment."""
    least = sum(int(a.min()) for a in amounts if a is not None)
    if least > limit:
        words = f"memory limit of {limit} bytes of pinned_host per device"
        raise InfeasibleError(
            f"the {words} cannot hold: at least {least} bytes are stated to live there; state less of it, use more "
            "devices, or a larger limit",
            conflict=[words], facts={"limit_bytes": limit, "least_bytes": least, "proved": True},
        )  # fmt: skip


def hold_host(network: CostNetwork, amounts: Amounts, limit: int | None) -> CostNetwork:
    """The network with a limit on the bytes that the host holds for one device.

    The bytes are held at a moment of their own, in units of the other limit. The units are small enough that rounding
    down decides every sum correctly. A limit that no decision reaches is left out, and an amount beyond the limit
    alone counts as just beyond it, so that large limits and small ones fit the same whole numbers.
    """
    most = [int(a.max()) for a in amounts if a is not None]
    if limit is None or sum(most) <= limit:
        return network
    reached = 1 + sum(int(u.amounts.max()) for us in network.usages for u in us)  # a limit that memory cannot reach
    whole = reached if network.usage_limit is None else min(network.usage_limit, reached)
    scale = -(-(len(most) * limit) // whole)
    end = max((u.stop for us in network.usages for u in us), default=0)
    usages: list[list[Usage]] = [[] for _ in range(network.n_nodes)]
    for node, held in enumerate(network.usages):
        usages[node] += [Usage(u.start, u.stop, np.minimum(u.amounts, whole + 1) * scale) for u in held]
    whole *= scale
    for node, own in enumerate(amounts):
        if own is not None:
            parts = np.array([min(int(b), limit + 1) * whole // limit for b in own], np.int64)
            usages[node].append(Usage(end, end + 1, parts))
    return CostNetwork(network.costs, network.edges, tuple(map(tuple, usages)), whole, network.facets)
