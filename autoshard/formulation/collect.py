"""Collecting the decisions: one pass over the program makes the nodes and the links between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from autoshard.costs.fusion import Fusion
from autoshard.costs.liveness import Liveness
from autoshard.errors import InfeasibleError, UnsupportedError
from autoshard.formulation.model import Link, Node, NodeKind, Port
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.program.rule import ShardingRule
from autoshard.program.types import TensorType
from autoshard.schedule import PROGRAM, Use
from autoshard.sharding.axis import AxisRef
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.strategies.partial import PartialReach
from autoshard.strategies.space import OpSpace, PartialSums, enumerate_placements, value_rule
from autoshard.strategies.uneven import may_pad, uneven_factors

Pins = Mapping[int, Sequence[TensorSharding]]


@dataclass
class Collected:
    """nodes and links; form[value]: the port its uses start from; definition[value]: where it is defined."""

    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    definition: dict[int, Port] = field(default_factory=dict)
    form: dict[int, Port] = field(default_factory=dict)
    multiplicity: dict[int, float] = field(default_factory=dict)  # op id -> executions per step
    op_node: dict[int, int] = field(default_factory=dict)


def satisfies(layout: Layout, pin: TensorSharding, mesh: AtomMesh) -> bool:
    """Does a layout hold what a sharding says: closed dimensions exactly, open ones as a prefix (S0.7)."""
    for have, want in zip(layout.dims, pin.dims, strict=True):
        atoms = [a for ref in want.axes for a in mesh.atoms_for(ref) if mesh.sizes[a] > 1]
        got = [a for a in have if mesh.sizes[a] > 1]
        if got[: len(atoms)] != atoms or (not want.is_open and len(got) != len(atoms)):
            return False
    cut = {a for d in layout.dims for a in d}
    if cut & {a for ref in pin.replicated for a in mesh.atoms_for(ref)}:
        return False
    return set(layout.unreduced) == {a for ref in pin.unreduced for a in mesh.atoms_for(ref)}


class Collector:
    """Walks a program once and fills a `Collected`.

    input_pins, value_pins, output_pins: statements by value id (output slot for outputs).
    ties: output slot -> input value whose layout the output takes (donated state).
    """

    def __init__(
        self,
        program: Program,
        mesh: AtomMesh,
        fusion: Fusion,
        liveness: Liveness,
        *,
        value_pins: Pins,
        output_pins: Pins,
        ties: Mapping[int, int],
        axis_orders: Sequence[Sequence[str]] = (),
        trips: int = 1,
    ) -> None:
        self.program, self.mesh, self.fusion, self.liveness = program, mesh, fusion, liveness
        self.value_pins, self.output_pins, self.ties = value_pins, output_pins, ties
        self.axis_orders = axis_orders
        self.trips = trips
        self.reach = PartialReach(program, mesh)
        self.out = Collected()
        self._spaces: dict[object, OpSpace] = {}
        self._use_count: dict[int, int] = {}
        self._pending: list[tuple[int, Port, float, Use, bool]] = []

    # -- the walk ------------------------------------------------------------------------------------

    def run(self) -> Collected:
        self._count_uses(self.program.body, outputs=True)
        for value in self.program.body.args:
            self._define_input(value)
        self._block(self.program.body, 1.0)
        self._outputs()
        self._all_pins_found()
        return self.out

    def _all_pins_found(self) -> None:
        """A pin on a value that nothing here decides must not pass for one that holds."""
        for value in self.value_pins:
            if value not in self.out.definition and not self._literal(value):
                raise UnsupportedError(
                    f"{self._label(value)} is pinned, but it lies inside of a shard_map of the program, whose values "
                    "are where the program puts them; pin an operand or a result of the shard_map instead"
                )

    def _count_uses(self, block: Block, outputs: bool = False) -> None:
        for op in block.ops:
            for value in op.operands:
                self._use_count[value] = self._use_count.get(value, 0) + 1
            if op.kind == "shard_map":
                continue
            for region in op.regions:
                self._count_uses(region)
                for value in region.results:
                    self._use_count[value] = self._use_count.get(value, 0) + 1
        if outputs:
            for value in block.results:
                self._use_count[value] = self._use_count.get(value, 0) + 1

    def _block(self, block: Block, weight: float) -> None:
        for op in block.ops:
            self.out.multiplicity[op.id] = weight
            if op.rule is not None:
                self._op(op, weight)
            elif op.kind == "scan":
                self._scan(op, weight)
            elif op.kind == "while":
                self._while(op, weight)
            elif op.kind == "cond":
                self._cond(op, weight)
            elif op.kind == "shard_map":
                self._manual(op, weight)
            else:
                raise UnsupportedError(f"{op.source}: region op {op.kind!r} is not supported in planning")

    # -- nodes ---------------------------------------------------------------------------------------

    def _add(self, node: Node) -> int:
        self.out.nodes.append(node)
        return len(self.out.nodes) - 1

    def _literal(self, value: int) -> bool:
        return self.program.values[value].origin is Origin.LITERAL

    def _space(self, rule: ShardingRule, partial: PartialSums, uneven: frozenset[int] = frozenset()) -> OpSpace:
        key = (rule, partial, uneven)
        if key not in self._spaces:
            self._spaces[key] = enumerate_placements(rule, self.mesh, partial, self.axis_orders, uneven)
        return self._spaces[key]

    def _layouts(
        self, type_: TensorType, partial: frozenset[int] = frozenset(), *, padded: bool = False
    ) -> tuple[Layout, ...]:
        """All layouts a value of this type may be stored in; with `padded` also those that do not divide its
        dimensions.

        Arguments and results of a JAX program cannot be stored unevenly.
        """
        sums = PartialSums((tuple(sorted(partial)),))
        rule = value_rule(type_.shape)
        return self._space(rule, sums, frozenset(rule.shardable) if padded else frozenset()).result_layouts[0]

    def _label(self, value: int) -> str:
        return self.program.values[value].name

    def _pinned(self, layouts: Sequence[Layout], pins: Sequence[TensorSharding], what: str) -> np.ndarray:
        keep = [i for i, lay in enumerate(layouts) if all(satisfies(lay, p, self.mesh) for p in pins)]
        if not keep:
            raise InfeasibleError(
                f"{what} cannot be held in {' and '.join(map(str, pins))}: no layout that autoshard considers on mesh "
                f"{self.mesh.mesh} does; a dimension should be divisible by the product of the axes on it (inputs and "
                "intermediates may be padded by up to a quarter, outputs not at all)"
            )
        return np.array(keep, np.int64)

    def _with_stated(
        self, layouts: tuple[Layout, ...], type_: TensorType, pins: Sequence[TensorSharding], *, padded: bool = False
    ) -> tuple[Layout, ...]:
        """`layouts`, and the one that closed pins spell out where it is not among them: parts of an axis that
        part ways.
        """
        dims: list[tuple[int, ...]] = []
        for d, size in enumerate(type_.shape):
            closed = [pin.dims[d] for pin in pins if not pin.dims[d].is_open]
            if not closed:
                return layouts
            atoms = tuple(a for ref in closed[0].axes for a in self.mesh.atoms_for(ref) if self.mesh.sizes[a] > 1)
            parts = self.mesh.size(atoms)
            if size % parts and not (padded and may_pad(size, parts, self.mesh.sizes[atoms[-1]])):
                return layouts
            dims.append(atoms)
        stated = Layout(tuple(dims))
        known = stated in layouts or not all(satisfies(stated, pin, self.mesh) for pin in pins)
        return layouts if known else (*layouts, stated)

    def _define_input(self, value: int) -> None:
        type_ = self.program.type_of(value)
        pins = self.value_pins.get(value, ())
        layouts = self._with_stated(self._layouts(type_, padded=bool(pins)), type_, pins, padded=True)
        node = Node(NodeKind.INPUT, self._label(value), 1.0, layouts, value=value)
        node.costs = np.zeros(len(layouts))
        if pins:
            node.allowed = self._pinned(layouts, pins, f"input {self._label(value)} {type_}")
        start, stop = self.liveness.interval[value]
        node.usages = [(start, stop, self._bytes(type_, layouts))]
        index = self._add(node)
        self._defined(value, Port(index, layouts), 1.0, pins=())

    def _bytes(self, type_: TensorType, layouts: Sequence[Layout]) -> np.ndarray:
        element = type_.bytes / max(1, type_.elements)
        return np.array([prod(lay.local_shape(type_.shape, self.mesh)) * element for lay in layouts])

    def _defined(self, value: int, port: Port, weight: float, pins: Sequence[TensorSharding] | None = None) -> None:
        """Register a definition, with a hub where several uses (or a pin) share a form; `pins`: other than the
        value's own.
        """
        self.out.definition[value] = port
        if pins is None:
            pins = self.value_pins.get(value, ())
        if self._use_count.get(value, 0) < 2 and not pins:
            self.out.form[value] = port
            return
        self.out.form[value] = self._hub(value, port, weight, pins)

    def _hub(self, value: int, port: Port, weight: float, pins: Sequence[TensorSharding]) -> Port:
        type_ = self.program.type_of(value)
        defined = list(dict.fromkeys(port.layouts))
        whole = self._with_stated(self._layouts(type_, padded=True), type_, pins, padded=True)
        candidates = list(dict.fromkeys([*defined, *whole]))
        if pins:
            keep = self._pinned(candidates, pins, f"value {self._label(value)} {type_}")
            candidates = [candidates[i] for i in keep.tolist()]
        shares = [lay for lay in defined if lay in set(candidates)]
        layouts = (*shares, *candidates)
        copies = np.array([False] * len(shares) + [True] * len(candidates))
        node = Node(NodeKind.HUB, self._label(value), weight, layouts, copies, value=value)
        node.costs = np.zeros(len(layouts))
        first, last = self.liveness.reads.get(value, (0, 0))
        amounts = np.where(copies, self._bytes(type_, layouts), 0.0)
        node.usages = [(first, last + 1, amounts)]
        index = self._add(node)
        hub = Port(index, layouts)
        self.out.links.append(Link(value, port, hub, weight, None, shares=True))
        return hub

    def _use(self, value: int, target: Port, weight: float, use: Use, shares: bool = False) -> None:
        if not self._literal(value):
            self.out.links.append(Link(value, self.out.form[value], target, weight, use, shares))

    def _op(self, op: Op, weight: float) -> None:
        assert op.rule is not None
        space = self._space(op.rule, self.reach.of(op), uneven_factors(op.kind, op.rule))
        node = Node(NodeKind.OP, f"{op.kind}:{op.id}", weight, space=space, op=op.id)
        node.facets = space.facets
        for k, result in enumerate(op.results):
            if result in self.liveness.interval and result in self.fusion:
                start, stop = self.liveness.interval[result]
                amounts = self._bytes(self.program.type_of(result), space.result_layouts[k])
                node.usages.append((start, stop, amounts))
        index = self._add(node)
        self.out.op_node[op.id] = index
        for k, value in enumerate(op.operands):
            self._use(value, Port(index, space.operand_layouts[k]), weight, Use(op.id, k))
        for k, result in enumerate(op.results):
            self._defined(result, Port(index, space.result_layouts[k]), weight)

    def _boundary(
        self,
        op: Op,
        what: str,
        value: int,
        weight: float,
        *,
        partial: frozenset[int] = frozenset(),
        held: tuple[int, int, float] | None = None,
        copies: bool = False,
    ) -> Port:
        """A node for the layout of `value`'s type at a region boundary.

        held: (start, stop, factor): the array is kept for that time, its bytes times factor; with `copies` only where
        the state is a copy beside the outer array.
        """
        type_ = self.program.type_of(value)
        base = self._layouts(type_, partial)
        layouts = (*base, *base) if copies else base
        flags = np.array([False] * len(base) + [True] * len(base)) if copies else None
        node = Node(NodeKind.BOUNDARY, f"{op.kind}:{op.id} {what}", weight, layouts, flags, value=value)
        node.costs = np.zeros(len(layouts))
        if held is not None:
            start, stop, factor = held
            amounts = self._bytes(type_, layouts) * factor
            node.usages = [(start, stop, np.where(flags, amounts, 0.0) if flags is not None else amounts)]
        return Port(self._add(node), layouts)

    def _scan(self, op: Op, weight: float) -> None:
        body, consts, carries = op.regions[0], op.attrs["num_consts"], op.attrs["num_carry"]
        length = op.attrs["length"]
        inner = weight * length
        start, last = self.liveness.span[op.id]
        for k in range(len(body.args)):
            arg = body.args[k]
            if consts <= k < consts + carries:
                partial = self.reach.get(arg) & self.reach.get(op.results[k - consts])
                port = self._boundary(
                    op, f"carry {k - consts}", arg, weight, partial=partial, held=(start + 1, last, 1.0)
                )
                self._use(op.operands[k], port, weight, Use(op.id, k))
            else:
                stacked = k >= consts + carries
                factor = float(length) if stacked else 1.0
                port = self._boundary(op, f"operand {k}", arg, weight, held=(start, last + 1, factor), copies=True)
                outer = Port(port.node, tuple(map(stack, port.layouts))) if stacked else port
                self._use(op.operands[k], outer, weight, Use(op.id, k), shares=True)
            self._defined(arg, port, inner)
        ports = [self.out.definition[body.args[consts + k]] for k in range(carries)]
        self._block(body, inner)
        for k, result in enumerate(op.results):
            if k < carries:
                self._use(body.results[k], ports[k], inner, Use(op.id, k, 0))
                self._defined(result, ports[k], weight)
                self._holds(ports[k].node, result)
            else:
                partial = self.reach.get(result)
                port = self._boundary(op, f"stacked result {k}", body.results[k], weight, partial=partial)
                self._use(body.results[k], port, inner, Use(op.id, k, 0))
                outer = Port(port.node, tuple(map(stack, port.layouts)))
                self._holds(port.node, result, outer.layouts)
                self._defined(result, outer, weight)

    def _holds(self, node: int, value: int, layouts: Sequence[Layout] | None = None) -> None:
        """The node's array is also what `value` is kept in."""
        if value in self.liveness.interval and value in self.fusion:
            start, stop = self.liveness.interval[value]
            chosen = self.out.nodes[node].layouts if layouts is None else layouts
            self.out.nodes[node].usages.append((start, stop, self._bytes(self.program.type_of(value), chosen)))

    def _while(self, op: Op, weight: float) -> None:
        cond, body = op.regions
        n_cond, n_body = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        inner = weight * (op.attrs.get("trips") or self.trips)
        start, last = self.liveness.span[op.id]
        carries = len(op.results)
        for k in range(n_cond + n_body):
            arg = cond.args[k] if k < n_cond else body.args[k - n_cond]
            port = self._boundary(op, f"operand {k}", arg, weight, held=(start, last + 1, 1.0), copies=True)
            self._use(op.operands[k], port, weight, Use(op.id, k), shares=True)
            self._defined(arg, port, inner)
        ports = []
        for k in range(carries):
            slot = n_cond + n_body + k
            port = self._boundary(op, f"carry {k}", body.args[n_body + k], weight, held=(start + 1, last, 1.0))
            self._use(op.operands[slot], port, weight, Use(op.id, slot))
            self._defined(cond.args[n_cond + k], port, inner)
            self._defined(body.args[n_body + k], port, inner)
            ports.append(port)
        self._block(cond, inner)
        self._whole(cond.results[0], inner, Use(op.id, 0, 0))
        self._block(body, inner)
        for k in range(carries):
            self._use(body.results[k], ports[k], inner, Use(op.id, k, 1))
            self._defined(op.results[k], ports[k], weight)
            self._holds(ports[k].node, op.results[k])

    def _cond(self, op: Op, weight: float) -> None:
        start, last = self.liveness.span[op.id]
        self._whole(op.operands[0], weight, Use(op.id, 0))
        for k, value in enumerate(op.operands[1:]):
            port = self._boundary(op, f"operand {k}", value, weight, held=(start, last + 1, 1.0), copies=True)
            self._use(value, port, weight, Use(op.id, k + 1), shares=True)
            for region in op.regions:
                self._defined(region.args[k], port, weight)
        for region in op.regions:
            self._block(region, weight)
        for k, result in enumerate(op.results):
            port = self._boundary(op, f"result {k}", result, weight)
            for r, region in enumerate(op.regions):
                self._use(region.results[k], port, weight, Use(op.id, k, r))
            self._holds(port.node, result)
            self._defined(result, port, weight)

    def _whole(self, value: int, weight: float, use: Use) -> None:
        """A use that wants the value whole on every device."""
        if self._literal(value):
            return
        layout = Layout.replicated(self.program.type_of(value).rank)
        node = Node(NodeKind.BOUNDARY, f"whole {self._label(value)}", weight, (layout,), value=value)
        node.costs = np.zeros(1)
        self._use(value, Port(self._add(node), (layout,)), weight, use)

    def _manual(self, op: Op, weight: float) -> None:
        """A user's shard_map: its operands and results are where the user put them."""
        layouts = [self._named(op, names) for names in op.attrs["in_names"]]
        results = [self._named(op, names) for names in op.attrs["out_names"]]
        for k, value in enumerate(op.operands):
            node = Node(NodeKind.BOUNDARY, f"shard_map:{op.id} operand {k}", weight, (layouts[k],), value=value)
            node.costs = np.zeros(1)
            self._use(value, Port(self._add(node), (layouts[k],)), weight, Use(op.id, k))
        for k, result in enumerate(op.results):
            node = Node(NodeKind.BOUNDARY, f"shard_map:{op.id} result {k}", weight, (results[k],), value=result)
            node.op = op.id if k == 0 else None  # the first result carries the price of the body
            node.costs = np.zeros(1)
            index = self._add(node)
            self._holds(index, result)
            self._defined(result, Port(index, (results[k],)), weight)

    def _named(self, op: Op, names: Sequence[Sequence[str]]) -> Layout:
        missing = sorted({a for d in names for a in d} - set(self.mesh.mesh.axis_names))
        if missing:
            raise UnsupportedError(
                f"{op.source}: a shard_map in the program uses mesh axes {missing}, which the planning mesh "
                f"{self.mesh.mesh} does not have; give the plan a mesh with these axes"
            )
        return Layout(tuple(tuple(a for name in d for a in self.mesh.atoms_for(AxisRef(name))) for d in names))

    def _outputs(self) -> None:
        for slot, value in enumerate(self.program.body.results):
            if self._literal(value):
                continue
            use = Use(PROGRAM, slot)
            if slot in self.ties and slot not in self.output_pins and self._stored_evenly(self.ties[slot]):
                self._use(value, self.out.definition[self.ties[slot]], 1.0, use)
                continue
            type_ = self.program.type_of(value)
            pins = self.output_pins.get(slot, ())
            layouts = self._with_stated(self._layouts(type_), type_, pins)
            name = self.program.output_names[slot]
            node = Node(NodeKind.OUTPUT, name, 1.0, layouts, value=value)
            node.costs = np.zeros(len(layouts))
            if pins:
                node.allowed = self._pinned(layouts, pins, f"output {name} {type_}")
            self._use(value, Port(self._add(node), layouts), 1.0, use)

    def _stored_evenly(self, value: int) -> bool:
        """Whether all layouts that are left for an input divide its dimensions, as those of outputs must."""
        node = self.out.nodes[self.out.definition[value].node]
        kept = range(node.states) if node.allowed is None else node.allowed.tolist()
        return all(node.layouts[k].is_even(self.program.type_of(value).shape, self.mesh) for k in kept)


def stack(layout: Layout) -> Layout:
    """The layout of a stack of slices: a leading dimension that is not cut."""
    return Layout(((), *layout.dims), layout.unreduced)
