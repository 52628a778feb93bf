"""What every op does, as far as machines tell kinds of compiled work apart, worked out from the plan's program."""

from collections.abc import Iterator, Mapping
from typing import Any

from autoshard.costmodels.compiled import FEW_QUERIES, WorkKind
from autoshard.verify.plan.matmuls import MatmulOrder, common_dimensions
from autoshard.verify.plan.program import Body, Graph, Node
from autoshard.verify.plan.rules import Rule, read_rule
from autoshard.verify.plan.work import MATRIX_KINDS, writes

_BESIDE_MATMULS = (WorkKind.ELEMENTWISE, WorkKind.REDUCED, WorkKind.UPDATE)


def kinds_of_work(graph: Graph, order: MatmulOrder) -> dict[int, WorkKind]:
    """Op id -> what it does (docs/costmodels.md), for ops with a rule, those inside of a shard_map too."""
    out: dict[int, WorkKind] = {}
    softmaxed = _sizes_of_softmax(graph)
    for body in _all(graph.body):
        rules = {op.id: read_rule(op.rule) for op in body.ops if op.rule is not None}
        behind = _behind_reductions(body)
        for op in body.ops:
            if op.id in rules:
                out[op.id] = _alone(op, rules[op.id], order, behind, softmaxed)
        for op in _around_scores(graph, body, out):
            out[op] = WorkKind.SCORES
        for op in body.ops:
            if out.get(op.id) is WorkKind.MATMUL and order.leading.isdisjoint(op.results):
                if _is_applied(graph, body, rules, op, order, behind):
                    out[op.id] = WorkKind.UPDATED
    parts = _parts_of_arrays(graph)
    for op in graph.nodes.values():
        if out.get(op.id) is WorkKind.MATMUL and max(op.operands, key=lambda v: graph.values[v].elements) in parts:
            out[op.id] = WorkKind.SLICED
    return out


def _parts_of_arrays(graph: Graph) -> set[int]:
    """Values that are parts of larger arrays, or are made of such parts and of single numbers alone."""
    out: set[int] = set()
    for op in graph.nodes.values():
        if op.kind == "scan":
            out.update(op.regions[0].args[op.attrs["num_consts"] + op.attrs["num_carry"] :])
    for body in _all(graph.body):
        for op in body.ops:
            if op.regions or op.kind in MATRIX_KINDS:
                continue
            large = [v for v in op.operands if graph.values[v].elements > 1]
            sizes = {graph.values[v].elements for v in op.results}
            alike = op.kind == "broadcast_in_dim" or sizes == {
                max((graph.values[v].elements for v in large), default=0)
            }
            if op.kind in ("slice", "dynamic_slice") or (large and alike and out.issuperset(large)):
                out.update(op.results)
    return out


def _all(body: Body) -> Iterator[Body]:
    yield body
    for op in body.ops:
        for inner in op.regions:
            yield from _all(inner)


def _shortest_side(rule: Rule) -> int:
    """Elements along the shortest of rows, columns and contraction: what exactly two tensors of a product have."""
    sides: dict[tuple[int, ...], int] = {(0, 1): 1, (0, 2): 1, (1, 2): 1}
    tensors = [*rule.operands, *rule.results]
    for factor, size in enumerate(rule.sizes):
        having = tuple(k for k, tensor in enumerate(tensors) if any(factor in dim for dim in tensor))
        if having in sides:
            sides[having] *= size
    return min(sides.values())


def _sizes_of_softmax(graph: Graph) -> set[tuple[int, ...]]:
    """Sizes of the products of attention of a single sequence: one shared dimension, and an exponential at the largest
    of the three tensors, with nothing but ops of as many elements in between.
    """

    def elements(value: int) -> int:
        return graph.values[value].elements

    out: set[tuple[int, ...]] = set()
    for body in _all(graph.body):
        joined: dict[int, set[int]] = {}  # value -> those of as many elements that an op beside matmuls joins it with
        raised: set[int] = set()
        for op in body.ops:
            if op.rule is None or op.kind in MATRIX_KINDS or "work" in op.attrs or op.regions:
                continue
            around = {*op.operands, *op.results}
            if op.kind in ("exp", "exp2"):
                raised |= around
            for value in around:
                joined.setdefault(value, set()).update(v for v in around if elements(v) == elements(value))
        for op in body.ops:
            if op.rule is None or not _one_sequence(op, rule := read_rule(op.rule)):
                continue
            start = max([*op.operands, *op.results], key=elements)
            reached, waiting = {start}, [start]
            while waiting:
                new = joined.get(waiting.pop(), set()) - reached
                reached |= new
                waiting += new
            if not raised.isdisjoint(reached):
                out.add(_sizes(rule))
    return out


def _one_sequence(op: Node, rule: Rule) -> bool:
    return op.kind in MATRIX_KINDS and common_dimensions(rule) == 1 and _shortest_side(rule) >= FEW_QUERIES


def _sizes(rule: Rule) -> tuple[int, ...]:
    return tuple(sorted(size for size in rule.sizes if size > 1))


def _alone(op: Node, rule: Rule, order: MatmulOrder, behind: set[int], softmaxed: set[tuple[int, ...]]) -> WorkKind:
    if "work" in op.attrs:
        return WorkKind.KERNEL
    if op.kind == "conv_general_dilated":
        return WorkKind.CONVOLUTION
    if op.kind in MATRIX_KINDS:
        if common_dimensions(rule) > 1:
            return WorkKind.ATTENTION if _shortest_side(rule) >= FEW_QUERIES else WorkKind.CACHED
        return WorkKind.ATTENTION if _one_sequence(op, rule) and _sizes(rule) in softmaxed else WorkKind.MATMUL
    if order.leading.isdisjoint(op.results):
        return WorkKind.UPDATE
    return WorkKind.ELEMENTWISE if behind.isdisjoint(op.results) else WorkKind.REDUCED


def _behind_reductions(body: Body) -> set[int]:
    """Values that come from a reduction with no product in between."""
    out: set[int] = set()
    for op in body.ops:
        if op.regions or "work" in op.attrs or op.kind in MATRIX_KINDS:
            continue
        reduces = op.kind.startswith(("reduce_", "arg", "cum", "select_and")) and op.kind != "reduce_precision"
        if reduces or op.kind == "reduce" or any(v in out for v in op.operands):
            out.update(op.results)
    return out


def _around_scores(graph: Graph, body: Body, kinds: Mapping[int, WorkKind]) -> set[int]:
    """Ops that touch what is as large as scores and connected with them, by ops beside matmuls."""

    def elements(value: int) -> int:
        return graph.values[value].elements

    beside = [op for op in body.ops if kinds.get(op.id) in _BESIDE_MATMULS]
    waiting = [
        max([*op.operands, *op.results], key=elements) for op in body.ops if kinds.get(op.id) is WorkKind.ATTENTION
    ]
    of_value: dict[int, list[Node]] = {}
    for op in beside:
        for value in {*op.operands, *op.results}:
            of_value.setdefault(value, []).append(op)
    found: set[int] = set()
    reached = set(waiting)
    while waiting:
        at = waiting.pop()
        for op in of_value.get(at, ()):
            found.add(op.id)
            further = [v for v in {*op.operands, *op.results} - reached if elements(v) == elements(at)]
            reached.update(further)
            waiting.extend(further)
    return found


def _is_applied(
    graph: Graph, body: Body, rules: Mapping[int, Any], op: Node, order: MatmulOrder, behind: set[int]
) -> bool:
    """Whether a product meets an array that is no product, by pointwise ops alone, on its way out of the block."""
    size = graph.values[op.results[0]].elements
    alone, met = {op.results[0]}, set()
    for reader in body.ops:  # in the order of the data flow
        if reader.regions or not (alone | met).intersection(reader.operands):
            continue
        if writes(reader, rules.get(reader.id)) or behind.intersection(reader.operands):
            continue
        meets = bool(met.intersection(reader.operands)) or any(
            graph.values[v].elements == size and v not in order.before for v in reader.operands
        )
        (met if meets else alone).update(v for v in reader.results if graph.values[v].elements == size)
    return not met.isdisjoint(body.results)
