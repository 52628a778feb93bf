"""The nodes of a module's graph: ops with rules, data-flow edges with their sources, barriers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from autoshard.errors import InputError, UnsupportedError
from autoshard.program.rule import TensorFactors
from autoshard.propagation.graph import Graph, Node
from autoshard.propagation.mlir.holders import Holders
from autoshard.propagation.mlir.index import ModuleIndex
from autoshard.propagation.mlir.manual import add_free, erase_manual
from autoshard.propagation.mlir.ops import (
    BARRIER,
    EDGE,
    FUNC_EDGE,
    MANUAL,
    NAMED,
    barrier_direction,
    get_attribute,
    is_elementwise,
    manual_axes,
    mapping,
    op_class,
    owning_op,
    terminator,
)
from autoshard.propagation.step import StepRule, identity_rule


@dataclass
class Nodes:
    """Makes the node of each op; rules are read once for each attribute."""

    index: ModuleIndex
    holders: Holders
    graph: Graph
    _rules: dict[ir.Attribute, int] = field(default_factory=dict)
    _mappings: dict[ir.Attribute, TensorFactors] = field(default_factory=dict)

    def node(self, at: int, op: ir.Operation, erasable: bool) -> Node:
        """The engine's node for the op with number `at`.

        erasable: whether the op may be removed once its results have no use.
        """
        index, name = self.index, self.index.names[at]
        values = index.operands[at]
        uses, shapes = index.uses, index.shapes
        elementwise = is_elementwise(op, name)
        node = Node(
            (),
            (),
            op=at,
            values=values,
            defines=index.results[at],
            shared=any(uses[v] != 1 and shapes[v] != () for v in values),
            erasable=erasable,
            inner=index.inner[at],
            op_class=op_class(op, name, elementwise),
            elementwise=elementwise,
        )
        if name == EDGE:
            self._edge(at, op, node)
        elif name == FUNC_EDGE:
            self._function_edge(at, op, node)
        elif name == BARRIER:
            self._identity(node, values, index.results[at][0])
            node.allowed = barrier_direction(op)
        else:
            rule = get_attribute(op, "sdy.sharding_rule")
            if rule is not None:
                of = self.holders.of
                node.rule = self._rule(rule)
                node.operands = tuple([of[v] for v in values])
                node.results = tuple([of[v] for v in index.results[at]])
        return node

    def _identity(self, node: Node, sources: Sequence[int], target: int) -> None:
        shape = self.index.shapes[target]
        if shape is None:
            return
        node.operands = tuple(self.holders.of[s] for s in sources)
        node.results = (self.holders.of[target],)
        node.rule = self.graph.steps.rule_number(identity_rule(shape, len(sources)))
        node.heeds_conservative = False

    def _edge(self, at: int, op: ir.Operation, node: Node) -> None:
        index = self.index
        owner = op.operands[0]
        region_op = owning_op(owner)
        if isinstance(owner, ir.BlockArgument) and region_op.name == "func.func":
            raise InputError(
                f"{op.name} on argument {owner.arg_number} of a function: nothing flows into it but the argument; "
                "put data-flow edges on results of ops with regions, or leave them to propagation"
            )
        self._identity(node, [index.number[s] for s in self._sources(region_op, owner)], index.results[at][0])
        if region_op.name != MANUAL:
            return
        manual, meshes = manual_axes(region_op), index.meshes
        if isinstance(owner, ir.BlockArgument):
            outer = index.specs(region_op.attributes["in_shardings"])[owner.arg_number]
            assert outer is not None
            node.before = lambda spec: add_free(outer, spec, manual, meshes)
            node.after = lambda spec: erase_manual(spec, manual, meshes) or spec
        else:
            outer = index.specs(region_op.attributes["out_shardings"])[ir.OpResult(owner).result_number]
            assert outer is not None
            node.before = lambda spec: erase_manual(spec, manual, meshes) or spec
            node.after = lambda spec: add_free(outer, spec, manual, meshes)

    def _sources(self, op: ir.Operation, owner: ir.Value) -> list[ir.Value]:
        """The values that flow into the targets of an edge."""
        if isinstance(owner, ir.BlockArgument):
            return [op.operands[owner.arg_number]]
        number = ir.OpResult(owner).result_number
        if op.name == "stablehlo.while":
            return [op.operands[number], terminator(op.regions[1]).operands[number]]
        if op.name == "stablehlo.case":
            return [terminator(r).operands[number] for r in op.regions]
        if op.name == "stablehlo.optimization_barrier":
            return [op.operands[number]]
        if op.name in (MANUAL, NAMED):
            return [terminator(op.regions[0]).operands[number]]
        raise UnsupportedError(f"a data-flow edge hangs on {op.name}, which is no data-flow op")

    def _function_edge(self, at: int, op: ir.Operation, node: Node) -> None:
        index, operand = self.index, op.operands[0]
        if isinstance(operand, ir.BlockArgument):
            name = ir.StringAttr(owning_op(operand).attributes["sym_name"]).value
            sources = [c.operands[operand.arg_number] for c in index.calls.get(name, ())]
        else:
            callee = index.functions[ir.FlatSymbolRefAttr(owning_op(operand).attributes["callee"]).value]
            sources = [terminator(callee.regions[0]).operands[ir.OpResult(operand).result_number]]
        if sources:
            self._identity(node, [index.number[s] for s in sources], index.results[at][0])

    def _rule(self, attr: ir.Attribute) -> int:
        number = self._rules.get(attr)
        if number is None:
            rule = sdy.OpShardingRuleAttr(attr)
            sizes = tuple(rule.factor_sizes)
            special = {*rule.reduction_factors, *rule.need_replication_factors, *rule.permutation_factors}
            step = StepRule(
                sizes,
                tuple([self._mapping(m) for m in rule.operand_mappings]),
                tuple([self._mapping(m) for m in rule.result_mappings]),
                frozenset(rule.blocked_propagation_factors),
                tuple(f not in special for f in range(len(sizes))),
            )
            number = self._rules[attr] = self.graph.steps.rule_number(step)
        return number

    def _mapping(self, attr: ir.Attribute) -> TensorFactors:
        factors = self._mappings.get(attr)
        if factors is None:
            factors = self._mappings[attr] = mapping(attr)
        return factors
