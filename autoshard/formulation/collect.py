"""Collecting the decisions: one pass over the program makes the nodes and the links between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from autoshard.costs.border import stored_layout
from autoshard.costs.conversions import narrowed_bytes
from autoshard.costs.exposure import Exposure
from autoshard.costs.fusion import Fusion
from autoshard.costs.host import read_on_device
from autoshard.costs.liveness import Liveness, only_uses
from autoshard.costs.memory import sizes
from autoshard.costs.padding import Tile, image_dims
from autoshard.deadline import Check, no_check
from autoshard.errors import InfeasibleError, UnsupportedError
from autoshard.formulation import regions
from autoshard.formulation.domains import Domains, satisfies
from autoshard.formulation.holding import holds, shared_form
from autoshard.formulation.model import Link, Node, NodeKind, Port
from autoshard.formulation.stacks import EXTRA_SHARE, stacked_values
from autoshard.placements.partial import PartialReach
from autoshard.placements.space import OpSpace, PartialSums
from autoshard.placements.uneven import uneven_factors
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.program.rule import ShardingRule
from autoshard.program.schedule import PROGRAM, Use
from autoshard.program.types import TensorType
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.tensor_sharding import TensorSharding

__all__ = ["Collected", "Collector", "StatedShardings", "satisfies"]

Pins = Mapping[int, Sequence[TensorSharding]]


@dataclass
class Collected:
    """The decisions of a program.

    form[value]: the port that the value's uses start from. definition[value]: the port where the value is defined.
    stored[value]: of inputs that a pin may cut unevenly, the same port with the layouts in which JAX has them.
    """

    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    definition: dict[int, Port] = field(default_factory=dict)
    form: dict[int, Port] = field(default_factory=dict)
    stored: dict[int, Port] = field(default_factory=dict)
    multiplicity: dict[int, float] = field(default_factory=dict)  # op id -> executions per step
    op_node: dict[int, int] = field(default_factory=dict)
    even_ends: list[tuple[int, int]] = field(default_factory=list)  # output nodes, inputs whose even part they have


@dataclass(frozen=True)
class _Form:
    """States of a hub.

    defined: layouts in which the value may be defined. layouts: one for each state, first the definition itself in the
    layouts that may be shared, then copies, which `copies` flags; last, those that are gathered as they are used.
    defined_in: see `Node`.
    """

    defined: tuple[Layout, ...]
    layouts: tuple[Layout, ...]
    copies: np.ndarray
    defined_in: tuple[Layout | None, ...] | None


class StatedShardings(NamedTuple):
    """Shardings that must hold. values: pins by value id. outputs: pins by output slot.

    own: output slots that a pin names, whose layouts are not those of the inputs that they replace.
    """

    values: Pins
    outputs: Pins
    own: frozenset[int]


class Analyses(NamedTuple):
    """What is known of a program before its decisions are collected. exposure: what counts of collectives."""

    fusion: Fusion
    liveness: Liveness
    exposure: Exposure


class Collector:
    """Walks a program once and fills a `Collected`.

    ties: output slot -> input value whose layout the output takes (donated or carried state).
    loose: keep states that pins forbid, for judging what holds without some of them (`formulation.loose`).
    as_used: shared forms may be gathered as they are used.
    check: called at every op with how many are done; may raise to stop.
    """

    def __init__(
        self,
        program: Program,
        mesh: AtomMesh,
        analyses: Analyses,
        *,
        stated: StatedShardings,
        ties: Mapping[int, int],
        domains: Domains,
        trips: int = 1,
        reach: PartialReach | None = None,
        tile: Tile | None = None,
        loose: bool = False,
        as_used: bool = True,
        check: Check = no_check,
    ) -> None:
        self.program, self.mesh = program, mesh
        self.fusion, self.liveness, self.exposure = analyses
        self.stated, self.ties = stated, ties
        self.domains = domains
        self.trips, self.loose, self.as_used, self.check = trips, loose, as_used, check
        self.reach = PartialReach(program, mesh) if reach is None else reach
        self.inputs = frozenset(program.body.args)
        self.read = frozenset(read_on_device(program))
        self.stacks = stacked_values(program, ties)
        self._size = sizes(program, mesh, tile, self.fusion.twice)
        self._images = {} if tile is None else image_dims(program)
        self._bytes: dict[object, tuple[Sequence[Layout], np.ndarray]] = {}
        self._even: dict[object, tuple[Sequence[Layout], Sequence[Layout]]] = {}
        self._forms: dict[object, tuple[Sequence[Layout], _Form]] = {}
        self.out = Collected()
        self._use_count: dict[int, int] = {}

    @cached_property
    def crossing(self) -> frozenset[int]:
        """Values whose only use is an operand of an op with regions, or a result of a region."""
        ops = self.program.ops
        uses = only_uses(self.program).items()
        return frozenset(v for v, use in uses if use.region >= 0 or (use.op in ops and ops[use.op].regions))

    # -- the walk ------------------------------------------------------------------------------------

    def run(self) -> Collected:
        """The nodes and links of the whole program; `UnsupportedError` for a pin on a value that no node decides."""
        self._count_uses(self.program.body, outputs=True)
        for value in self.program.body.args:
            self._define_input(value)
        self.block(self.program.body, 1.0)
        self._outputs()
        self._all_pins_found()
        return self.out

    def _all_pins_found(self) -> None:
        """`UnsupportedError` for a pin on a value that no node decides: such a pin would be ignored."""
        for value in self.stated.values:
            if value not in self.out.definition and not self.literal(value):
                raise UnsupportedError(
                    f"{self.label(value)} is pinned, but it lies inside of a shard_map of the program, whose values "
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

    def block(self, block: Block, weight: float) -> None:
        """All ops of a block that runs `weight` times per step."""
        for op in block.ops:
            self.check("enumerating placements of ops", len(self.out.op_node), len(self.program.ops))
            self.out.multiplicity[op.id] = weight
            if op.rule is not None:
                self._op(op, weight)
            elif op.kind == "scan":
                regions.scan(self, op, weight)
            elif op.kind == "while":
                regions.while_loop(self, op, weight)
            elif op.kind == "cond":
                regions.cond(self, op, weight)
            elif op.kind == "shard_map":
                regions.manual(self, op, weight)
            else:
                raise UnsupportedError(f"{op.source}: region op {op.kind!r} is not supported in planning")

    # -- nodes ---------------------------------------------------------------------------------------

    def add(self, node: Node) -> int:
        """Register a node; returns its index."""
        self.out.nodes.append(node)
        return len(self.out.nodes) - 1

    def literal(self, value: int) -> bool:
        """Whether a value is a literal, which has no layout and no links."""
        return self.program.values[value].origin is Origin.LITERAL

    def _space(self, rule: ShardingRule, partial: PartialSums, uneven: frozenset[int] = frozenset()) -> OpSpace:
        return self.domains.space(rule, partial, uneven)

    def layouts(self, type_: TensorType, partial: frozenset[int] = frozenset()) -> tuple[Layout, ...]:
        """All layouts that divide a value of this type, unreduced at most over the atoms `partial`."""
        return self.domains.layouts(type_, partial)

    def label(self, value: int) -> str:
        """The name of a value in messages."""
        return self.program.values[value].name

    def _none_left(self, what: str, pins: Sequence[TensorSharding]) -> InfeasibleError:
        return InfeasibleError(
            f"{what} cannot be held in {' and '.join(map(str, pins))}: no layout that autoshard considers on mesh "
            f"{self.mesh.mesh} does; a dimension should be divisible by the product of the axes on it (inputs and "
            "intermediates may be padded by up to a quarter, outputs not at all)"
        )

    def _define_input(self, value: int) -> None:
        type_ = self.program.type_of(value)
        pins = self.stated.values.get(value, ())
        layouts, kept = self.domains.of_input(type_, pins)
        node = Node(NodeKind.INPUT, self.label(value), 1.0, layouts, value=value)
        node.costs = np.zeros(len(layouts))
        if pins and not self.loose:
            if not len(kept):
                raise self._none_left(f"input {self.label(value)} {type_}", pins)
            node.allowed = kept
        stored = self._stored(value, layouts) if pins else layouts
        held = self.bytes(value, stored)
        if value in self.liveness.interval:  # an input on the host that nothing reads never comes to the device
            start, stop = self.liveness.interval[value]
            node.usages = [(start, stop, held)]
        along = np.array([value in self.stacks and bool(lay.dims[0]) for lay in layouts])
        block = self.bytes(value, layouts)
        node.priced = held + np.where(along, np.ceil(block * EXTRA_SHARE), 0.0)
        index = self.add(node)
        if stored is not layouts:
            self.out.stored[value] = Port(index, stored)
            if value in self.read:  # and cut out of what is stored
                uneven = np.array([a != b for a, b in zip(stored, layouts, strict=True)])
                node.priced = node.priced + np.where(uneven, block, 0.0)
        self.defined(value, Port(index, layouts), 1.0, pins=())

    def _stored(self, value: int, layouts: Sequence[Layout]) -> Sequence[Layout]:
        """The layouts in which JAX has an input that is planned in these; the same object where all are even."""
        key = (self.program.type_of(value).shape, id(layouts))
        if key not in self._even:  # the layouts are kept too, so that their id is not given to another object
            stored = tuple(stored_layout(self.program, self.mesh, value, layout) for layout in layouts)
            self._even[key] = (layouts, layouts if stored == tuple(layouts) else stored)
        return self._even[key][1]

    def bytes(self, value: int, layouts: Sequence[Layout]) -> np.ndarray:
        """Bytes that one device holds, for each layout; do not write to the array."""
        key = (self.program.type_of(value), self._images.get(value), value in self.fusion.twice, id(layouts))
        if key not in self._bytes:  # the layouts are kept too, so that their id is not given to another object
            amounts = np.array([self._size(value, layout) for layout in layouts], np.float64)
            amounts.flags.writeable = False
            self._bytes[key] = (layouts, amounts)
        return self._bytes[key][1]

    def has_hub(self, value: int) -> bool:
        """Whether a node of its own decides the form that the uses of a value share."""
        return self._use_count.get(value, 0) >= 2 or bool(self.stated.values.get(value, ()))

    def defined(self, value: int, port: Port, weight: float, pins: Sequence[TensorSharding] | None = None) -> None:
        """Register where a value is defined, with a hub where several uses or a pin share a form.

        pins: in place of the value's own.
        """
        self.out.definition[value] = port
        if pins is None:
            pins = self.stated.values.get(value, ())
        if self._use_count.get(value, 0) < 2 and not pins:
            self.out.form[value] = port
            return
        self.out.form[value] = self._hub(value, port, weight, pins)

    def _hub(self, value: int, port: Port, weight: float, pins: Sequence[TensorSharding]) -> Port:
        form = self._form(value, port, pins, self.as_used and bool(self.exposure.converting(value)))
        layouts, copies = form.layouts, form.copies
        node = Node(NodeKind.HUB, self.label(value), weight, layouts, copies, form.defined_in, value=value)
        node.costs = np.zeros(len(layouts))
        amounts = self.bytes(value, layouts)
        node.priced = np.where(copies, amounts, 0.0)
        held, beside = self._as_used_bytes(value, amounts, form)
        node.usages = shared_form(self, value, held, copies, self.bytes(value, form.defined), beside)
        index = self.add(node)
        hub = Port(index, layouts)
        role = self.exposure.role(value, PROGRAM)
        travel = self.exposure.travel(value, PROGRAM)
        as_used = None if form.defined_in is None else self.exposure.travel(value, PROGRAM, as_used=True)
        link = Link(value, port, hub, weight, None, shares=True, role=role, travel=travel, as_used=as_used)
        self.out.links.append(link)
        return hub

    def _as_used_bytes(self, value: int, amounts: np.ndarray, form: "_Form") -> tuple[np.ndarray, np.ndarray]:
        """Per state of a hub, the bytes of its form, and of the definition that stays beside what is gathered as it is
        used.
        """
        beside = np.zeros(len(amounts))
        if form.defined_in is None:
            return amounts, beside
        held, share = amounts.copy(), self.fusion.narrowed[value]
        for state, of in enumerate(form.defined_in):
            if of is not None:
                held[state], beside[state] = narrowed_bytes(amounts[state], share), self._size(value, of)
        return held, beside

    def _form(self, value: int, port: Port, pins: Sequence[TensorSharding], as_used: bool) -> "_Form":
        """The states of a hub; the same for all values of a type that are defined in the same layouts. as_used: some
        may be gathered as they are used.
        """
        type_ = self.program.type_of(value)
        key = (type_, id(port.layouts), tuple(pins), as_used)
        if key not in self._forms:  # the layouts are kept too, so that their id is not given to another object
            defined = tuple(dict.fromkeys(port.layouts))
            plain = self.domains.layouts(type_, padded=True)
            whole = self.domains.with_stated(plain, type_, pins, padded=True, summed=True)
            candidates = list(dict.fromkeys([*defined, *whole]))
            if pins and not self.loose:
                candidates = [candidates[i] for i in self.domains.kept(candidates, pins).tolist()]
                if not candidates:
                    raise self._none_left(f"value {self.label(value)} {type_}", pins)
            among = set(candidates)
            shares = [lay for lay in defined if lay in among]
            ways = [(lay, of) for of in defined for lay in candidates if lay.is_gathered_from(of)] if as_used else []
            states = (*shares, *candidates, *(lay for lay, _ in ways))
            defined_in = (*[None] * (len(states) - len(ways)), *(of for _, of in ways)) if ways else None
            form = _Form(defined, states, np.arange(len(states)) >= len(shares), defined_in)
            self._forms[key] = (port.layouts, form)
        return self._forms[key][1]

    def use(self, value: int, target: Port, weight: float, use: Use, shares: bool = False) -> None:
        """Link the form of a value to where it is consumed `weight` times per step."""
        if not self.literal(value):
            role = self.exposure.role(value, use.op)
            travel = self.exposure.travel(value, use.op)
            form = self.out.form[value]
            whole = use.op not in self.exposure.converting(value)
            self.out.links.append(Link(value, form, target, weight, use, shares, role=role, travel=travel, whole=whole))

    def _op(self, op: Op, weight: float) -> None:
        assert op.rule is not None
        space = self._space(op.rule, self.reach.of(op), uneven_factors(op.kind, op.rule))
        node = Node(NodeKind.OP, f"{op.kind}:{op.id}", weight, space=space, op=op.id)
        node.facets = space.facets
        for k, result in enumerate(op.results):
            holds(self, node, result, space.result_layouts[k])
        index = self.add(node)
        self.out.op_node[op.id] = index
        for k, value in enumerate(op.operands):
            self.use(value, Port(index, space.operand_layouts[k]), weight, Use(op.id, k))
        for k, result in enumerate(op.results):
            self.defined(result, Port(index, space.result_layouts[k]), weight)

    def _outputs(self) -> None:
        for slot, value in enumerate(self.program.body.results):
            if self.literal(value):
                continue
            use = Use(PROGRAM, slot)
            tied = slot in self.ties and slot not in self.stated.own
            if tied and self._stored_evenly(self.ties[slot]):
                self.use(value, self.out.definition[self.ties[slot]], 1.0, use)
                continue
            type_ = self.program.type_of(value)
            pins = self.stated.outputs.get(slot, ())
            layouts, kept = self.domains.of_output(type_, pins)
            even = self._even_parts(self.ties[slot]) if tied and not self.loose else ()
            layouts = (*layouts, *sorted((p for p in even if p not in layouts), key=str))
            name = self.program.output_names[slot]
            node = Node(NodeKind.OUTPUT, name, 1.0, layouts, value=value)
            node.costs = np.zeros(len(layouts))
            if pins and not self.loose:
                if not len(kept):
                    raise self._none_left(f"output {name} {type_}", pins)
                node.allowed = kept
            if even:
                node.allowed = np.array([k for k in self.domains.kept(layouts, pins) if layouts[k] in even], np.int64)
                if not len(node.allowed):
                    raise self._none_left(f"output {name} {type_}", pins)
                self.out.even_ends.append((len(self.out.nodes), self.ties[slot]))
            self.use(value, Port(self.add(node), layouts), 1.0, use)

    def _stored_evenly(self, value: int) -> bool:
        """Whether all layouts that statements leave for an input divide its dimensions, as those of outputs must."""
        return all(x.is_even(self.program.type_of(value).shape, self.mesh) for x in self._left_for(value))

    def _even_parts(self, value: int) -> frozenset[Layout]:
        """The layouts in which JAX has an input, where statements leave it those that it is padded in."""
        return frozenset(x.even_part(self.program.type_of(value).shape, self.mesh) for x in self._left_for(value))

    def _left_for(self, value: int) -> list[Layout]:
        node = self.out.nodes[self.out.definition[value].node]
        kept = range(node.states) if node.allowed is None else node.allowed.tolist()
        return [node.layouts[k] for k in kept]
