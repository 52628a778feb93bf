"""Which values lie before and after matmuls, worked out again from a program's edges."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoshard.verify.plan.program import PROGRAM_OP, Body, Graph, Node
from autoshard.verify.plan.work import is_matrix

if TYPE_CHECKING:
    from autoshard.verify.plan.cost import Row


@dataclass(frozen=True, slots=True)
class MatmulOrder:
    """Which values come before and after matmuls.

    before: values that a matmul's result leads to. leading: values that lead to a matmul. leading_ops: ops that lead to
    a matmul, are one, or have one inside.
    """

    before: frozenset[int]
    leading: frozenset[int]
    leading_ops: frozenset[int]

    @staticmethod
    def of(graph: Graph) -> "MatmulOrder":
        """Worked out by reachability from value to value, around loops too."""
        ops = list(_ops(graph.body))
        after: dict[int, list[int]] = {}
        toward: dict[int, list[int]] = {}
        for op in ops:
            for source, target in _edges(op):
                after.setdefault(source, []).append(target)
                toward.setdefault(target, []).append(source)
        matmuls = [op for op in ops if is_matrix(op) and not op.regions]
        before = _reached([v for op in matmuls for v in op.results], after)
        leading = _reached([v for op in matmuls for v in op.operands], toward)
        holding = {op.id for op in ops if is_matrix(op) or any(is_matrix(o) for o in _below(op))}
        leads = holding | {op.id for op in ops if leading.intersection(op.results)}
        return MatmulOrder(before, leading, frozenset(leads))

    def moves(self, row: "Row") -> str:
        """What a collective moves: ``weights``, ``activations`` or ``gradients``."""
        if row.value not in self.before:
            return "weights"
        later = row.value in self.leading if row.op == PROGRAM_OP else row.op in self.leading_ops
        return "activations" if later else "gradients"


def _ops(body: Body) -> Iterator[Node]:
    for op in body.ops:
        yield op
        yield from _below(op)


def _below(op: Node) -> Iterator[Node]:
    for body in op.regions:
        yield from _ops(body)


def _edges(op: Node) -> Iterator[tuple[int, int]]:
    """(value, value that is made of it or stands for it) at one op; conditions of branches and loops lead nowhere."""
    if not op.regions:
        for source in op.operands:
            for target in op.results:
                yield source, target
        return
    if op.kind == "while":
        cond, body = op.regions
        tested, carried = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        consts, start = op.operands[tested : tested + carried], op.operands[tested + carried :]
        yield from zip([*op.operands[:tested], *start], cond.args, strict=False)
        yield from zip([*consts, *start], body.args, strict=False)
        yield from zip(body.results, body.args[carried:], strict=False)
        yield from zip(body.results, op.results, strict=False)
        return
    for body in op.regions:
        yield from zip(op.operands[1 if op.kind == "cond" else 0 :], body.args, strict=False)
        yield from zip(body.results, op.results, strict=False)
    if op.kind == "scan":
        (body,), first = op.regions, op.attrs["num_consts"]
        yield from zip(body.results[: op.attrs["num_carry"]], body.args[first:], strict=False)


def _reached(seeds: Sequence[int], edges: dict[int, list[int]]) -> frozenset[int]:
    reached, stack = set(seeds), list(seeds)
    while stack:
        for value in edges.get(stack.pop(), ()):
            if value not in reached:
                reached.add(value)
                stack.append(value)
    return frozenset(reached)


def common_dimensions(rule: Any) -> int:
    """Factors longer than one that both operands and the result of a product have; 0 for anything but a product."""
    tensors = [*rule.operands, *rule.results]
    if (len(rule.operands), len(rule.results)) != (2, 1):
        return 0
    return sum(
        size > 1 and all(any(factor in dim for dim in tensor) for tensor in tensors)
        for factor, size in enumerate(rule.sizes)
    )
