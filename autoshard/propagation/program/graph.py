"""From a `Program` to the graph of holders and nodes that the engine propagates over.

Region ops become data-flow edges (S2.39 to S2.42): one for each carried value of a loop, for each result of a
conditional, for each value that enters a body. Constants are copied for each use, so that nothing travels from one use
to another through them (S2.43 to S2.46). Closed shardings of constraints and of `shard_map` operands are put on the
values they constrain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoshard.errors import UnsupportedError
from autoshard.program.program import Block, Op, Origin, Program
from autoshard.program.rule import ShardingRule
from autoshard.propagation.directions import Direction, OpClass
from autoshard.propagation.graph import NO_HOLDER, Graph, Node, new_graph
from autoshard.propagation.op_classes import EDGES, is_elementwise, op_class
from autoshard.propagation.program.chains import behind_chains
from autoshard.propagation.program.groups import members_to_open, tie
from autoshard.propagation.program.order import AROUND, UNSEEN, Use, in_order
from autoshard.propagation.program.regions import region_op
from autoshard.propagation.program.statements import apply_constraints, capture, count_uses
from autoshard.propagation.spec import Spec
from autoshard.propagation.step import StepRule, identity_rule


def step_rule(rule: ShardingRule) -> StepRule:
    """The part of a sharding rule that propagation uses."""
    special = rule.reduction | rule.need_replication | rule.permutation
    return StepRule(
        rule.factor_sizes,
        rule.operands,
        rule.results,
        rule.blocked,
        tuple(f not in special for f in range(len(rule.factor_sizes))),
    )


@dataclass
class ProgramGraph:
    """A graph with the holder of every value.

    copies: for each constant, the holders of its copies, one for each use. stated: values that have a sharding of their
    own from the start. bound: those of them that have it from a constraint or a `shard_map`, with that op.
    bound_holders: the same of copies of constants. returned: for each output of the program the holder that is handed
    back.
    """

    program: Program
    graph: Graph
    holder_of: dict[int, int] = field(default_factory=dict)
    copies: dict[int, list[int]] = field(default_factory=dict)
    nodes_of: dict[int, list[int]] = field(default_factory=dict)
    stated: frozenset[int] = frozenset()
    bound: dict[int, Op] = field(default_factory=dict)
    bound_holders: dict[int, Op] = field(default_factory=dict)
    returned: Sequence[int] = ()


def build_graph(
    program: Program,
    graph: Graph,
    specs: Mapping[int, Spec],
    groups: Sequence[Sequence[int]] = (),
    outputs: Sequence[tuple[int, Spec | None]] = (),
) -> ProgramGraph:
    """The graph of a program.

    specs: the user's shardings, by value id. groups: value ids. outputs: index and sharding of program outputs.
    """
    program, handed_back = behind_chains(program, specs)
    opened = frozenset[int]()
    if groups:
        trial = Builder(program, new_graph(graph.meshes), dict(specs), handed_back)
        trial.build((), ())
        opened = members_to_open(trial, groups)
    return Builder(program, graph, dict(specs), handed_back, opened).build(groups, outputs)


@dataclass
class Builder:
    """Walks the program once, and adds holders and nodes to a graph.

    handed_back: for constants of while loops what the body hands back, where it is not the constant.
    opened: values with an open constraint behind them, which a sharding group ties in their place. behind: the holders
    of these constraints. captured: arguments of branches, with the value outside that each stands for. carried:
    arguments of while loops, which share the holder of the edge behind the loop, with the region they belong to.
    bound_copies: shardings of the copies of constants that constraints use, by op id. bound_holders: these copies, with
    that op. flowing: holders that a data-flow edge defines. touching: for each holder its uses, as (region, node).
    """

    program: Program
    graph: Graph
    specs: dict[int, Spec]
    handed_back: dict[int, int] = field(default_factory=dict)
    opened: frozenset[int] = frozenset()
    behind: dict[int, int] = field(default_factory=dict)
    holder_of: dict[int, int] = field(default_factory=dict)
    copies: dict[int, list[int]] = field(default_factory=dict)
    bound_copies: dict[int, Spec] = field(default_factory=dict)
    nodes_of: dict[int, list[int]] = field(default_factory=dict)
    slots: dict[int, list[tuple[Node, tuple[Use, ...]]]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    constants: dict[int, Op] = field(default_factory=dict)
    expansions: dict[int, Op] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)
    rules: dict[ShardingRule, int] = field(default_factory=dict)
    redirected: dict[int, Op] = field(default_factory=dict)
    bound: dict[int, Op] = field(default_factory=dict)
    bound_holders: dict[int, Op] = field(default_factory=dict)
    captured: dict[int, int] = field(default_factory=dict)
    carried: dict[int, int] = field(default_factory=dict)
    flowing: set[int] = field(default_factory=set)
    touching: list[list[tuple[int, int]]] = field(default_factory=list)

    def build(self, groups: Sequence[Sequence[int]], outputs: Sequence[tuple[int, Spec | None]]) -> ProgramGraph:
        """The finished graph; groups and outputs as for `build_graph`."""
        capture(self)
        count_uses(self, groups)
        apply_constraints(self)
        self.block(self.program.body)
        returned = [self.use(value).holder for value in self.program.body.results]
        for arg, value in self.captured.items():
            self.holder_of[arg] = self.holder_of.get(self.meant(value), NO_HOLDER)
        self._place()
        graph = self.graph
        graph.prioritised = list(range(len(graph.holders)))
        tie(self, groups)
        for index, spec in outputs:
            shape = self.program.type_of(self.program.body.results[index]).shape
            slot = graph.holder(spec, len(shape))
            graph.prioritised.append(slot)
            graph.outputs.append((returned[index], slot, graph.steps.rule_number(identity_rule(shape))))
        stated = frozenset(self.specs)
        return ProgramGraph(
            self.program, graph, self.holder_of, self.copies, self.nodes_of, stated, self.bound, self.bound_holders,
            returned,
        )  # fmt: skip

    def meant(self, value: int) -> int:
        """The value itself, or the one outside that an argument of a branch stands for."""
        while value in self.captured:
            value = self.captured[value]
        return value

    def is_captured(self, op: Op) -> bool:
        """Whether an op stands for its operand: it does nothing but make a sharding group."""
        return not op.regions and len(op.results) > 0 and op.results[0] in self.captured

    # holders

    def _new_holder(self, value: int) -> int:
        return self.graph.holder(self.specs.get(value), self.program.type_of(value).rank)

    def define(self, value: int) -> int:
        """The holder of a value, made where it has none yet."""
        if value not in self.holder_of:
            self.holder_of[value] = self._new_holder(value)
        return self.holder_of[value]

    def use(self, value: int, user: Op | None = None) -> Use:
        """What a use of `value` sees.

        For a constant it is the use's own copy; for a value behind an edge, the constraint that its other uses go
        through.
        """
        value = self.meant(value)
        constraint = self.redirected.get(value)
        if constraint is not None and (user is None or user.id != constraint.id):
            value = constraint.results[0]
            return Use(self.behind.get(value, self.define(value)))
        if value in self.behind:
            return Use(self.behind[value])
        if self.program.values[value].origin is Origin.LITERAL:
            return Use(NO_HOLDER)
        op = self.constants.get(value) or self.expansions.get(value)
        if op is None or self.program.type_of(value).rank == 0:
            return Use(self.holder_of[value], self.carried.get(value, AROUND))
        spec = self.bound_copies.get(user.id) if user is not None else None
        holder = self._copy(value, op, {}, spec)
        if user is not None and spec is not None and value not in self.specs:
            self.bound_holders[holder] = user
        return Use(holder)

    def _copy(self, value: int, op: Op, done: dict[int, int], spec: Spec | None = None) -> int:
        if value in done:
            return done[value]
        operands: list[Use] = []
        for operand in map(self.meant, op.operands):
            inner = self.constants.get(operand) or self.expansions.get(operand)
            if inner is None or self.program.type_of(operand).rank == 0:
                operands.append(Use(self.holder_of.get(operand, NO_HOLDER)))
            else:
                operands.append(Use(self._copy(operand, inner, done)))
        for result in op.results:
            rank = self.program.type_of(result).rank
            done[result] = self.graph.holder(self.specs.get(result, spec if result == value else None), rank)
            self.copies.setdefault(result, []).append(done[result])
            self.holder_of.setdefault(result, done[result])
        self._node(op, tuple(operands), tuple(done[r] for r in op.results), shared=False)
        return done[value]

    # nodes

    def _rule(self, rule: ShardingRule) -> int:
        number = self.rules.get(rule)
        if number is None:
            number = self.rules[rule] = self.graph.steps.rule_number(step_rule(rule))
        return number

    def _node(self, op: Op, operands: tuple[Use, ...], results: tuple[int, ...], *, shared: bool | None = None) -> None:
        if op.rule is None:
            raise UnsupportedError(f"op {op.id} ({op.kind}) has no sharding rule; register one with register_rule")
        if shared is None:
            meant = map(self.meant, op.operands) if self.captured else op.operands
            shared = any(
                self.uses.get(v, 0) != 1
                for v in meant
                if self.program.type_of(v).rank and v not in self.constants and v not in self.expansions
            )
        node = Node(
            tuple([u.holder for u in operands]),
            results,
            self._rule(op.rule),
            op_class(op),
            is_elementwise(op),
            shared,
            op=op.id,
        )
        if op.kind in EDGES:  # their own values have no other use
            node.shared = False
            node.heeds_conservative = False
            self.flowing.update(results)
        if "allowed_direction" in op.attrs:  # a propagation barrier
            node.allowed = Direction(op.attrs["allowed_direction"])
            node.heeds_conservative = False
        self.slot(op.id).append((node, operands))

    def slot(self, op: int, *, after: bool = False) -> list[tuple[Node, tuple[Use, ...]]]:
        """The nodes of an op, or those that stand behind a region op's bodies: the edges of its results."""
        key = -1 - op if after else op
        if key not in self.slots:
            self.order.append(key)
            self.slots[key] = []
        return self.slots[key]

    def edge(self, op: Op, sources: Sequence[Use], target: int, shape: tuple[int, ...], *, after: bool = False) -> None:
        """A data-flow edge from uses to a holder; none for scalars, which pass nothing."""
        if not shape:
            return
        node = Node(
            tuple([u.holder for u in sources]),
            (target,),
            self.graph.steps.rule_number(identity_rule(shape, len(sources))),
            OpClass.PASS_THROUGH,
            heeds_conservative=False,
            op=op.id,
        )
        self.flowing.add(target)
        self.slot(op.id, after=after).append((node, tuple(sources)))

    def _place(self) -> None:
        """Nodes in program order, and for each holder the nodes that a change of it concerns."""
        graph = self.graph
        self.touching = [[] for _ in graph.holders]
        defining: list[int] = [-1] * len(graph.holders)
        for op in self.order:
            for node, uses in self.slots[op]:
                index = len(graph.nodes)
                graph.nodes.append(node)
                self.nodes_of.setdefault(op if op >= 0 else -1 - op, []).append(index)
                for use in dict.fromkeys(uses):
                    if use.holder >= 0 and use.region != UNSEEN:
                        self.touching[use.holder].append((use.region, index))
                for holder in node.results:
                    if holder >= 0:
                        defining[holder] = index
        for holder, definer in enumerate(defining):
            graph.notify[holder] = in_order(self.touching[holder], definer, is_edge=holder in self.flowing)

    # the walk

    def block(self, block: Block) -> None:
        """Holders and nodes of everything in a block."""
        for arg in block.args:
            if arg not in self.captured:
                self.define(arg)
                self._open(arg)
        for op in block.ops:
            self.slot(op.id)
            if op.regions:
                region_op(self, op)
            elif op.results[:1] and (op.results[0] in self.constants or op.results[0] in self.expansions):
                continue
            elif not self.is_captured(op):
                operands = tuple(self.use(v, op) for v in op.operands)
                self._node(op, operands, tuple(self.define(r) for r in op.results))
            for result in op.results:
                self._open(result)

    def _open(self, value: int) -> None:
        """Put an open constraint behind a value where a group needs one; it is no op of the program."""
        if value in self.opened:
            type_ = self.program.type_of(value)
            holder = self.behind[value] = self.graph.holder(None, type_.rank)
            rule = self.graph.steps.rule_number(identity_rule(type_.shape))
            node = Node((self.holder_of[value],), (holder,), rule, OpClass.PASS_THROUGH, elementwise=True, op=-2)
            use = Use(self.holder_of[value], self.carried.get(value, AROUND))
            self.slot(max(self.program.ops, default=-1) + 1 + value).append((node, (use,)))
