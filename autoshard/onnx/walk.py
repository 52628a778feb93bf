"""A walk over a model for one configuration: where every tensor lies, at every use and as it is made.

A missing input spec is that of the node that makes the value (S1.5), a model input or weight without one is replicated
on all devices of the configuration (S1.6), a missing output spec follows from op and inputs (S1.7). Bodies of If, Loop
and Scan are scopes of their own; functions are walked for every different call, whose specs bind inputs and outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autoshard.errors import UnsupportedError
from autoshard.onnx.algebra import Outcome, apply_rule, without_rule
from autoshard.onnx.calls import Constants, call_of
from autoshard.onnx.files import ModelFile
from autoshard.onnx.functions import Function, function_key, functions_of
from autoshard.onnx.graph import UNKNOWN, ValueType, initializer_types, node_name, subgraphs, value_types
from autoshard.onnx.placement import Placement, all_devices, placement_of, replicated
from autoshard.onnx.problems import ERROR, NO_RULE, WARNING, Problem
from autoshard.onnx.rules import SILENT_0007, Call, OpRule, RankUnknown, ShapesDisagree, rule_of
from autoshard.onnx.specs import Configuration, NodeAnnotation, ShardingSpec, read_annotations
from autoshard.onnx.structure import axis_problems

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

MAX_DEPTH = 60
"""How deeply functions and bodies may lie in each other."""

Path = tuple[tuple[int, str], ...]
"""Attributes that lead from the main graph to a graph within, as (node index, attribute name) pairs; that of a function
starts with (-1, its name).
"""

Faulty = frozenset[tuple[Path, int, str]]
"""(path, node index, tensor): specs that have faults and mean nothing."""


@dataclass(frozen=True, slots=True)
class Use:
    """One tensor of a node.

    kept: its placement between nodes (inputs: as its maker left it; outputs: as the op leaves it). placed: the one that
    the node has it in, by its spec or, without one, as kept. None where they are not known.
    """

    tensor: str
    kept: Placement | None
    placed: Placement | None
    spec: ShardingSpec | None


@dataclass(frozen=True)
class Visit:
    """One node, in one scope. scope: empty for the main graph, else such as ``node 'a' (If).then_branch``.

    faults: what is wrong with the axes that its specs name.
    """

    scope: str
    path: Path
    index: int
    node: "NodeProto"
    annotation: NodeAnnotation | None
    rule: OpRule | None
    inputs: tuple[Use, ...]
    outputs: tuple[Use, ...]
    outcome: Outcome
    types: Mapping[str, ValueType]
    faults: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        """The node's name, or one made of its op and index."""
        return node_name(self.node, self.index)

    def type(self, tensor: str) -> ValueType:
        """The type of a tensor; unknown where none is written."""
        return self.types.get(tensor, UNKNOWN)


@dataclass
class Scope:
    """The placements, types and constants that are visible in a scope, by name."""

    name: str
    path: Path
    placements: dict[str, Placement | None]
    types: dict[str, ValueType]
    constants: Constants
    opsets: Mapping[str, int]
    depth: int = 0


@dataclass
class Walk:
    """One walk over a model; `visits` are in the order of execution."""

    model: ModelFile
    configuration: Configuration
    strict: bool = False
    faulty: Faulty = frozenset()
    visits: list[Visit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.all_devices = all_devices(self.configuration.num_devices or 0)
        self.everywhere = replicated(self.all_devices)
        self.functions: dict[tuple[str, str, str], Function] = functions_of(self.model.inferred)
        self.rules: dict[tuple, OpRule | None] = {}
        self.known: dict[tuple, Outcome] = {}
        self.placed: dict[tuple, Placement] = {}
        self.called: dict[tuple, tuple[Placement | None, ...]] = {}

    def run(self) -> list[Visit]:
        """Walk over the main graph and all that it contains."""
        scope = Scope("", (), {}, {}, Constants(), self.model.opsets)
        self.graph(self.model.inferred.graph, scope)
        return self.visits

    def graph(self, graph: "GraphProto", scope: Scope) -> tuple[Placement | None, ...]:
        """Walk over one graph in its scope; returns the placements of its outputs."""
        scope.types.update(value_types(graph))
        for name in [*(i.name for i in graph.input), *initializer_types(graph)]:
            scope.placements[name] = self.everywhere
        scope.constants.add_tensors(graph.initializer)
        self.nodes(graph.node, scope)
        return tuple(scope.placements.get(o.name) for o in graph.output)

    def nodes(self, nodes: Sequence["NodeProto"], scope: Scope) -> None:
        """Visit nodes one after the other."""
        for index, node in enumerate(nodes):
            scope.constants.add_node(node)
            self.node(node, index, scope)

    def node(self, node: "NodeProto", index: int, scope: Scope) -> None:
        """Visit one node: where it wants its inputs, and what follows for its outputs."""
        annotation = self.annotation(node)
        faults: list[Problem] = []

        def use(name: str, kept: Placement | None) -> Use:
            return self._use(index, name, kept, annotation, scope, faults)

        inputs = tuple(use(name, scope.placements.get(name)) for name in dict.fromkeys(node.input) if name)
        placed = {use.tensor: use.placed for use in inputs}
        operands = [placed.get(name) if name else None for name in node.input]
        rule, outcome = self._outcome(node, index, operands, annotation, scope)
        outputs = tuple(use(name, natural) for name, natural in zip(node.output, outcome.outputs, strict=True) if name)
        scope.placements.update({made.tensor: made.placed for made in outputs})
        where = (scope.name, scope.path, index, node)
        self.visits.append(Visit(*where, annotation, rule, inputs, outputs, outcome, scope.types, tuple(faults)))

    def annotation(self, node: "NodeProto") -> NodeAnnotation | None:
        """What the node says for this configuration."""
        if not node.device_configurations:
            return None
        annotations = read_annotations(node)
        return next((a for a in annotations if a.configuration == self.configuration.name), None)

    def _use(
        self,
        index: int,
        name: str,
        kept: Placement | None,
        annotation: NodeAnnotation | None,
        scope: Scope,
        faults: list[Problem],
    ) -> Use:
        spec = annotation.spec(name) if annotation else None
        if spec is None:
            return Use(name, kept, kept, None)
        dims = scope.types.get(name, UNKNOWN).dims
        wrong = axis_problems(spec, dims, self.model.shapes)
        faults += wrong
        if (scope.path, index, name) in self.faulty or any(p.severity == ERROR for p in wrong):
            return Use(name, kept, None, None)
        if dims is None and spec.dims:
            return Use(name, kept, None, spec)
        key = (spec.device, spec.groups, spec.dims, dims)
        if key not in self.placed:
            self.placed[key] = placement_of(spec, dims or ())
        return Use(name, kept, self.placed[key], spec)

    def _outcome(
        self,
        node: "NodeProto",
        index: int,
        operands: list[Placement | None],
        annotation: NodeAnnotation | None,
        scope: Scope,
    ) -> tuple[OpRule | None, Outcome]:
        function = self.functions.get(function_key(node))
        if function is not None:
            return None, Outcome(self._call(function, node, index, operands, annotation, scope))
        bodies = list(subgraphs(node)) if node.attribute else []
        if bodies:
            return None, self._bodies(node, index, bodies, operands, annotation, scope)
        present = [p for p, name in zip(operands, node.input, strict=True) if name]
        call = call_of(node, scope.types, scope.constants, scope.opsets)
        shown = [f"{name!r}" for name in node.input]
        count = len(node.output)
        silent = annotation is not None and bool(annotation.specs) and node.op_type in SILENT_0007
        try:
            rule = self._rule(call, node.domain)
        except RankUnknown as error:
            return None, self._not_described(
                present, count, annotation, "rank-unknown", WARNING, f"the rank of {error.tensor!r} is not known"
            )
        except ShapesDisagree as error:
            problem = Problem("shapes-disagree", ERROR, f"the shapes do not fit the op: {error}")
            return None, Outcome((None,) * count, (problem,))
        if rule is None:
            text = f"{node.op_type} has no rule"
            return None, self._not_described(present, count, annotation, "no-rule", NO_RULE, text)
        key = (rule, tuple(operands))
        outcome = self.known.get(key)
        if outcome is None:
            outcome = apply_rule(rule, operands, shown, self.all_devices, strict=self.strict)
            if not outcome.problems:  # problems name these tensors, else equal layers are worked out once
                self.known[key] = outcome
        return rule, _beyond(node.op_type, outcome) if silent else outcome

    def _rule(self, call: Call, domain: str) -> OpRule | None:
        """`rule_of`; equal layers have theirs made once."""
        said = tuple(call.attributes.items()), tuple(call.constants.items()), tuple(call.reals.items())
        key = (call.op, domain, call.version, call.inputs, call.outputs, *said)
        if key not in self.rules:
            self.rules[key] = rule_of(call, domain)
        return self.rules[key]

    def _not_described(
        self,
        operands: Sequence[Placement | None],
        count: int,
        annotation: NodeAnnotation | None,
        code: str,
        severity: str,
        text: str,
    ) -> Outcome:
        """The outcome of an op without a rule: nothing is known of its outputs unless its inputs are whole."""
        outputs = without_rule(operands, count, self.all_devices)
        says = annotation is not None and bool(annotation.specs)
        if not says and all(p is None or p.is_whole for p in operands):
            return Outcome(outputs)
        problem = Problem(code, severity, f"{text}: nothing is said about how its tensors are cut")
        return Outcome(outputs, (problem,))

    def _bodies(
        self,
        node: "NodeProto",
        index: int,
        bodies: Sequence[tuple[str, "GraphProto"]],
        operands: Sequence[Placement | None],
        annotation: NodeAnnotation | None,
        scope: Scope,
    ) -> Outcome:
        """If, Loop and Scan: the bodies are walked; outputs are known where everything inside is whole, or where all
        branches of an If agree.
        """
        first = len(self.visits)
        results = []
        for attribute, body in bodies:
            where = f"{scope.name + ', ' if scope.name else ''}node {node_name(node, index)}.{attribute}"
            path = (*scope.path, (index, attribute))
            inner = Scope(
                where,
                path,
                dict(scope.placements),
                dict(scope.types),
                Constants(scope.constants),
                scope.opsets,
                self._deeper(scope, where),
            )
            results.append(self.graph(body, inner))
        count = len(node.output)
        used = [u.placed for visit in self.visits[first:] for u in (*visit.inputs, *visit.outputs)]
        if node.op_type == "If" and len(results[0]) == count and all(r == results[0] for r in results):
            outputs = results[0]
        else:
            present = [p for p, name in zip(operands, node.input, strict=True) if name]
            outputs = without_rule([*present, *used], count, self.all_devices)
        if annotation is not None and annotation.specs:
            text = f"{node.op_type} has no rule: its specs are taken as they are"
            return Outcome(outputs, (Problem("no-rule", NO_RULE, text),))
        return Outcome(outputs)

    def _deeper(self, scope: Scope, where: str) -> int:
        if scope.depth >= MAX_DEPTH:
            raise UnsupportedError(
                f"{self.model.name}: more than {MAX_DEPTH} functions or bodies within each other: {where}"
            )
        return scope.depth + 1

    def _call(
        self,
        function: Function,
        node: "NodeProto",
        index: int,
        operands: list[Placement | None],
        annotation: NodeAnnotation | None,
        scope: Scope,
    ) -> tuple[Placement | None, ...]:
        """Walk over the body with these inputs; a body that was walked with the same ones is not walked again."""
        kinds = tuple(scope.types.get(name, UNKNOWN) if name else UNKNOWN for name in node.input)
        key = (function_key(node), kinds, tuple(operands), function.attributes_key(node))
        if key not in self.called:
            body = function.body(kinds, node, self.model.inferred)
            inner = Scope(
                f"function {function.name}",
                ((-1, function.name),),
                dict(zip(function.inputs, operands, strict=False)),
                dict(body.types),
                Constants(),
                function.opsets,
                self._deeper(scope, f"function {function.name}"),
            )
            self.nodes(body.nodes, inner)
            self.called[key] = tuple(inner.placements.get(name) for name in function.outputs)
        placements = self.called[key]
        return (*placements[: len(node.output)], *(None,) * (len(node.output) - len(placements)))


def _beyond(op: str, outcome: Outcome) -> Outcome:
    """The same for an op that the proposal calls not supported: what does not fit our rule is no error (S1.40)."""
    text = f"the proposal has no rule for {op}; by autoshard's own "
    said = tuple(
        replace(p, severity=NO_RULE, message=f"{text}it does not fit: {p.message}") if p.severity == ERROR else p
        for p in outcome.problems
    )
    if not any(p.severity == NO_RULE for p in said):
        said = (*said, Problem("no-rule", NO_RULE, f"{text}it fits"))
    return Outcome(outcome.outputs, said, outcome.terms)
