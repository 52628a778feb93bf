"""Arrays that a TPU's compiler turns around for a loop, and the copies that it makes of them at the program's borders.

An operand of a batched matmul lies with its batch in front while a loop carries or reads it. From the array at the
border the way is followed: into the bodies of loops, through pointwise ops and updates, to matmuls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from autoshard.verify.plan.flow import UseKey
from autoshard.verify.plan.layout import Holding
from autoshard.verify.plan.lives import Lives, Span
from autoshard.verify.plan.program import PROGRAM_OP, Body, Graph, Node
from autoshard.verify.plan.rules import Rule
from autoshard.verify.plan.work import is_update


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a value in the order of its dimensions, or out of it, for a use of it, and when it is held."""

    what: str
    value: int
    use: UseKey
    span: Span


def turned_copies(lives: Lives) -> list[Copy]:
    """What is held under the plan's layouts; nothing where matmuls are calls of libraries."""
    flow, out = lives.flow, list[Copy]()
    graph = flow.graph
    if lives.calls is not None:
        return out

    def enter(what: str, value: int, use: UseKey, span: Span, body: Body, inner: int) -> None:
        way = flow.uses.get(use)
        moves = (way is not None and way.moves) or value in lives.shared
        if not moves and any(_lies_behind(flow.defined[value], d) for d in _wanted(graph, lives.rules, body, inner)):
            out.append(Copy(f"{graph.values[value].name}, turned for {what}", value, use, span))

    for op in graph.body.ops:
        if op.kind not in ("scan", "while"):
            continue
        constants, carries = _doors(op)
        for slot, inner in constants.items():
            if op.operands[slot] in graph.body.args:
                span = lives.begin[op.id], lives.end[op.id] + 1
                enter(op.label, op.operands[slot], (op.id, slot, -1), span, op.regions[-1], inner)
        for result, inner in zip(op.results, carries.values(), strict=False):
            for k, v in enumerate(graph.body.results):
                if v == result and k not in graph.host_outputs:
                    span = lives.close, lives.close + 1
                    what = f"output {graph.output_names[k]}"
                    enter(what, v, (PROGRAM_OP, k, -1), span, op.regions[-1], inner)
    return out


def _doors(op: Node) -> tuple[dict[int, int], dict[int, int]]:
    """Operands of a loop -> arguments of its body: constants, and carries."""
    args, before = op.regions[-1].args, 0
    if op.kind == "scan":
        fixed, end = op.attrs["num_consts"], op.attrs["num_consts"] + op.attrs["num_carry"]
    else:
        before, fixed, end = op.attrs["cond_nconsts"], op.attrs["body_nconsts"], len(args)
    return {before + k: args[k] for k in range(fixed)}, {before + k: args[k] for k in range(fixed, end)}


def _wanted(graph: Graph, rules: Mapping[int, Rule], body: Body, array: int) -> list[set[int]]:
    """For each matmul of matrices that reads an array of a body, the dimensions of its batch."""
    found, places = list[set[int]](), {array}
    for op in body.ops:
        read = [slot for slot, v in enumerate(op.operands) if v in places]
        if not read:
            continue
        rule = rules.get(op.id)
        if op.kind in ("scan", "while"):
            constants, carries = _doors(op)
            for slot in read:
                inner = constants.get(slot, carries.get(slot))
                if inner is not None:
                    found += _wanted(graph, rules, op.regions[-1], inner)
            places.update(r for r, slot in zip(op.results, carries, strict=False) if slot in read)
        elif rule is None or op.regions:
            continue
        elif op.kind == "dot_general":
            found += [dims for slot in read if (dims := _batch_of(rule, slot))]
        elif len(op.results) == 1:
            shape = graph.values[op.results[0]].shape
            free = {f for d in rule.results[0] for f in d}.isdisjoint(rule.uncut) or op.kind == "sort"
            alone = rule.is_pointwise and free
            if any((alone or (is_update(op) and slot == 0)) and graph.values[op.operands[slot]].shape == shape
                   for slot in read):  # fmt: skip
                places.add(op.results[0])
    return found


def _batch_of(rule: Rule, slot: int) -> set[int]:
    """The batch dimensions of an operand of a matmul; none where either operand is a vector for each of the batch."""
    sides = [{f for d in t for f in d} for t in rule.operands]
    this, that = sides[slot], sides[1 - slot]
    if any(prod(rule.sizes[f] for f in side) <= 1 for side in (this - that, that - this)):
        return set()
    shared = this & that - rule.reduction
    return {d for d, factors in enumerate(rule.operands[slot]) if factors and shared.issuperset(factors)}


def _lies_behind(held: Holding, batch: set[int]) -> bool:
    """Whether a dimension of the batch lies behind another one; those of one element on a device do not count."""
    order = [d in batch for d, run in enumerate(held.runs) if run.length > 1]
    return order != sorted(order, reverse=True)
