"""Region ops in the formulation: which layouts cross into and out of loops, branches and a user's shard_map."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autoshard.costs.manual import body_trips
from autoshard.formulation.holding import holds, keep_operand
from autoshard.formulation.model import Node, NodeKind, Port
from autoshard.program.program import Op
from autoshard.program.schedule import Use
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.layout import Layout

if TYPE_CHECKING:
    from autoshard.formulation.collect import Collector


def stack(layout: Layout) -> Layout:
    """The layout of a stack of slices: a leading dimension that is not cut."""
    return Layout(((), *layout.dims), layout.unreduced)


def _boundary(
    collector: "Collector",
    op: Op,
    what: str,
    value: int,
    weight: float,
    *,
    partial: frozenset[int] = frozenset(),
    held: tuple[int, int, float] | None = None,
    copies: bool = False,
) -> Port:
    """A node for the layout in which `value` crosses the boundary of a region.

    held: (start, stop, factor): the array is kept for that time, its bytes times factor; with `copies` only where
    the state is a copy beside the outer array.
    """
    type_ = collector.program.type_of(value)
    base = collector.layouts(type_, partial)
    layouts = (*base, *base) if copies else base
    flags = np.array([False] * len(base) + [True] * len(base)) if copies else None
    node = Node(NodeKind.BOUNDARY, f"{op.kind}:{op.id} {what}", weight, layouts, flags, value=value)
    node.costs = np.zeros(len(layouts))
    if held is not None:
        start, stop, factor = held
        amounts = collector.bytes(value, layouts) * factor
        node.priced = np.where(flags, amounts, 0.0) if flags is not None else amounts
        node.usages = [(start, stop, node.priced)]
    return Port(collector.add(node), layouts)


def scan(collector: "Collector", op: Op, weight: float) -> None:
    """Nodes of a scan: operands copied once or shared, carries that keep their layout, stacks whose stacked
    dimension is never cut.
    """
    body, consts, carries = op.regions[0], op.attrs["num_consts"], op.attrs["num_carry"]
    length = op.attrs["length"]
    inner = weight * body_trips(op, 0)
    start, last = collector.liveness.span[op.id]
    for k in range(len(body.args)):
        arg = body.args[k]
        if consts <= k < consts + carries:
            partial = collector.reach.get(arg) & collector.reach.get(op.results[k - consts])
            port = _boundary(collector, op, f"carry {k - consts}", arg, weight, partial=partial)
            _holds(collector, port, arg)
            collector.use(op.operands[k], port, weight, Use(op.id, k))
        else:
            stacked = k >= consts + carries
            factor = float(length) if stacked else 1.0
            port = _boundary(collector, op, f"operand {k}", arg, weight, held=(start, last + 1, factor), copies=True)
            outer = Port(port.node, tuple(map(stack, port.layouts))) if stacked else port
            keep_operand(collector, op.operands[k], outer, start, last)
            collector.use(op.operands[k], outer, weight, Use(op.id, k), shares=True)
        collector.defined(arg, port, inner)
    ports = [collector.out.definition[body.args[consts + k]] for k in range(carries)]
    collector.block(body, inner)
    for k, result in enumerate(op.results):
        if k < carries:
            collector.use(body.results[k], ports[k], inner, Use(op.id, k, 0))
            collector.defined(result, ports[k], weight)
            _holds(collector, ports[k], result)
        else:
            partial = collector.reach.get(result)
            port = _boundary(collector, op, f"stacked result {k}", body.results[k], weight, partial=partial)
            collector.use(body.results[k], port, inner, Use(op.id, k, 0))
            outer = Port(port.node, tuple(map(stack, port.layouts)))
            _holds(collector, outer, result)
            collector.defined(result, outer, weight)


def _holds(collector: "Collector", port: Port, value: int) -> None:
    """The array at a port is also what `value` is kept in."""
    holds(collector, collector.out.nodes[port.node], value, port.layouts)


def while_loop(collector: "Collector", op: Op, weight: float) -> None:
    """Nodes of a while loop: as for `scan`, without stacks; the predicate is whole on every device."""
    cond, body = op.regions
    n_cond, n_body = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
    test, inner = (weight * body_trips(op, region, collector.trips) for region in range(2))
    start, last = collector.liveness.span[op.id]
    carries = len(op.results)
    for k in range(n_cond + n_body):
        arg = cond.args[k] if k < n_cond else body.args[k - n_cond]
        port = _boundary(collector, op, f"operand {k}", arg, weight, held=(start, last + 1, 1.0), copies=True)
        keep_operand(collector, op.operands[k], port, start, last)
        collector.use(op.operands[k], port, weight, Use(op.id, k), shares=True)
        collector.defined(arg, port, test if k < n_cond else inner)
    ports = []
    for k in range(carries):
        slot = n_cond + n_body + k
        port = _boundary(collector, op, f"carry {k}", body.args[n_body + k], weight)
        _holds(collector, port, body.args[n_body + k])
        collector.use(op.operands[slot], port, weight, Use(op.id, slot))
        collector.defined(cond.args[n_cond + k], port, test)
        collector.defined(body.args[n_body + k], port, inner)
        ports.append(port)
    collector.block(cond, test)
    _whole(collector, cond.results[0], test, Use(op.id, 0, 0))
    collector.block(body, inner)
    for k in range(carries):
        collector.use(body.results[k], ports[k], inner, Use(op.id, k, 1))
        collector.defined(op.results[k], ports[k], weight)
        _holds(collector, ports[k], op.results[k])


def cond(collector: "Collector", op: Op, weight: float) -> None:
    """Nodes of a cond: every branch takes and gives the same layouts, and is priced as if it were taken."""
    start, last = collector.liveness.span[op.id]
    _whole(collector, op.operands[0], weight, Use(op.id, 0))
    for k, value in enumerate(op.operands[1:]):
        port = _boundary(collector, op, f"operand {k}", value, weight, held=(start, last + 1, 1.0), copies=True)
        keep_operand(collector, value, port, start, last)
        collector.use(value, port, weight, Use(op.id, k + 1), shares=True)
        for region in op.regions:
            collector.defined(region.args[k], port, weight)
    for region in op.regions:
        collector.block(region, weight)
    for k, result in enumerate(op.results):
        port = _boundary(collector, op, f"result {k}", result, weight)
        for r, region in enumerate(op.regions):
            collector.use(region.results[k], port, weight, Use(op.id, k, r))
        _holds(collector, port, result)
        collector.defined(result, port, weight)


def _whole(collector: "Collector", value: int, weight: float, use: Use) -> None:
    """A use that needs the value whole on every device."""
    if collector.literal(value):
        return
    layout = Layout.replicated(collector.program.type_of(value).rank)
    node = Node(NodeKind.BOUNDARY, f"whole {collector.label(value)}", weight, (layout,), value=value)
    node.costs = np.zeros(1)
    collector.use(value, Port(collector.add(node), (layout,)), weight, use)


def manual(collector: "Collector", op: Op, weight: float) -> None:
    """Nodes of a user's shard_map: its operands and results have the layouts that the user wrote."""
    layouts = [_named(collector, op, names) for names in op.attrs["in_names"]]
    results = [_named(collector, op, names) for names in op.attrs["out_names"]]
    for k, value in enumerate(op.operands):
        node = Node(NodeKind.BOUNDARY, f"shard_map:{op.id} operand {k}", weight, (layouts[k],), value=value)
        node.costs = np.zeros(1)
        collector.use(value, Port(collector.add(node), (layouts[k],)), weight, Use(op.id, k))
    for k, result in enumerate(op.results):
        node = Node(NodeKind.BOUNDARY, f"shard_map:{op.id} result {k}", weight, (results[k],), value=result)
        node.op = op.id if k == 0 else None  # the first result carries the price of the body
        node.costs = np.zeros(1)
        port = Port(collector.add(node), (results[k],))
        _holds(collector, port, result)
        collector.defined(result, port, weight)


def _named(collector: "Collector", op: Op, names: Sequence[Sequence[str]]) -> Layout:
    return Layout(tuple(tuple(a for name in d for a in collector.mesh.atoms_for(AxisRef(name))) for d in names))
