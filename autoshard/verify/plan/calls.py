"""Memory where matmuls are calls of libraries (GPUs): rules L1 to L5 of docs/memory.md, worked out again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from autoshard.verify.plan.program import Body, Graph, Node
from autoshard.verify.plan.rules import Rule
from autoshard.verify.plan.work import writes

_LIBRARY: Final = ("dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general")
_SLOW: Final = ("exp", "exp2", "expm1", "log1p", "tanh", "erf", "erfc", "erf_inv", "pow")
_RESULT: Final = -1


@dataclass(frozen=True)
class Calls:
    """kept: values with memory of their own. put_off: ids of ops that run when their body is done otherwise.
    two_orders: values that lie in memory twice.
    """

    kept: frozenset[int]
    put_off: frozenset[int]
    two_orders: frozenset[int]

    @staticmethod
    def of(graph: Graph, rules: Mapping[int, Rule], exists: set[int]) -> "Calls":
        """What follows for a program. exists: values that are written where everything fuses as on TPUs."""
        kept, put_off, two_orders = set(exists), set[int](), set[int]()
        for body in graph.bodies():
            kept |= {v for op in body.ops if op.kind in _LIBRARY for v in op.operands if not graph.values[v].is_literal}
        for body in graph.bodies():
            users: dict[int, list[Node]] = {}
            for op in body.ops:
                for v in set(op.operands):
                    users.setdefault(v, []).append(op)
            _slow(body, users, rules, kept)
            _wider(graph, body, users, kept)
            put_off |= _put_off(body, users)
            two_orders |= _two_orders(users, rules)
        return Calls(frozenset(kept), frozenset(put_off), frozenset(two_orders))


def _slow(body: Body, users: Mapping[int, list[Node]], rules: Mapping[int, Rule], kept: set[int]) -> None:
    """L2, backwards, since what is written ends the kernels before it."""
    seen: dict[int, set[int]] = {}  # what computes a value that is not in memory: kernels by the op that ends them

    def kernels(v: int) -> set[int]:
        if v not in seen:
            found = {_RESULT} if v in body.results else set[int]()
            for op in users.get(v, ()):
                inner = [r for r in op.results if r not in kept]
                if writes(op, rules.get(op.id)) or op.regions or len(inner) < len(op.results):
                    found.add(op.id)
                for r in inner:
                    found |= kernels(r)
            seen[v] = found
        return seen[v]

    for op in body.ops[::-1]:
        for v in op.results:  # all are looked at on the way, so that no chain is followed far
            if len(kernels(v)) >= 2 and op.kind in _SLOW:
                kept.add(v)


def _wider(graph: Graph, body: Body, users: Mapping[int, list[Node]], kept: set[int]) -> None:
    """L1: a product whose only use converts it to a wider type is written in that type."""
    for op in body.ops:
        if op.kind != "dot_general" or op.results[0] in body.results:
            continue
        match users.get(op.results[0]):
            case [Node(kind="convert_element_type") as only]:
                if graph.values[only.results[0]].bytes > graph.values[op.results[0]].bytes:
                    kept.discard(op.results[0])
                    kept.add(only.results[0])


def _put_off(body: Body, users: Mapping[int, list[Node]]) -> set[int]:
    """L3: matmuls that lead to no other one, no loop and no kernel, and all that they lead to."""
    reached: dict[int, bool] = {}  # op -> whether something that it leads to is one of these
    out: set[int] = set()
    for op in body.ops[::-1]:
        reached[op.id] = any(
            reached[user.id] or user.kind in _LIBRARY or bool(user.regions) or "kernel" in user.attrs
            for v in op.results for user in users.get(v, ())
        )  # fmt: skip
    waiting = [op for op in body.ops if op.kind in _LIBRARY and not reached[op.id]]
    while waiting:
        op = waiting.pop()
        if op.id not in out:
            out.add(op.id)
            waiting += [user for v in op.results for user in users.get(v, ())]
    return out


def _two_orders(users: Mapping[int, list[Node]], rules: Mapping[int, Rule]) -> set[int]:
    """L4: operands of which batched matmuls sum different dimensions, where some of several dimensions go together."""
    out: set[int] = set()
    for v, ops in users.items():
        sums: set[tuple[int, ...]] = set()
        together = False
        for op in ops:
            rule = rules.get(op.id)
            if op.kind != "dot_general" or rule is None:
                continue
            result = {f for dim in rule.results[0] for f in dim}
            left, right = ({f for dim in t for f in dim} for t in rule.operands)
            for slot, dims in enumerate(rule.operands):
                if op.operands[slot] != v:
                    continue
                batch = [d for d, dim in enumerate(dims) if any(f in result and f in left and f in right for f in dim)]
                summed = tuple(d for d, dim in enumerate(dims) if dim and all(f not in result for f in dim))
                sums.add(summed)
                free = len(dims) - len(batch) - len(summed)
                together = together or (bool(batch) and (free > 1 or len(summed) > 1))
        if together and len(sums) > 1:
            out.add(v)
    return out
