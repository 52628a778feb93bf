"""Scans in a program's graph, as JAX lowers them: a while loop around calls.

All that a scan reads is carried by the loop, the stacked arrays whole. Its body is a call, and so are the slice of each
stacked operand before it and the update of each stacked result behind it. Between a call and the loop there are
data-flow edges, for each argument and each result of the call. A change outside of a call does not put the edge of the
call's argument on the worklist: it waits for the next rung (as in Shardy).
"""

from typing import TYPE_CHECKING

from autoshard.program.program import Op
from autoshard.program.rule import TensorFactors
from autoshard.propagation.directions import OpClass
from autoshard.propagation.graph import Node
from autoshard.propagation.program.order import UNSEEN, Use
from autoshard.propagation.step import StepRule

if TYPE_CHECKING:
    from autoshard.propagation.program.graph import Builder

Shape = tuple[int, ...]


def add_scan(b: "Builder", op: Op) -> None:
    """The edges and nodes of a scan, and those of its body."""
    consts, carry, length = op.attrs["num_consts"], op.attrs["num_carry"], op.attrs["length"]
    (body,) = op.regions

    def shape(value: int) -> Shape:
        return b.program.type_of(value).shape

    kept = [*op.operands[consts + carry :], *op.operands[:consts]]  # in the order in which the loop carries them
    inits = [b.use(value, op) for value in kept]
    places = [b.graph.holder(None, len(shape(value))) for value in kept]
    stacked = len(kept) - consts
    started = [b.use(value, op) for value in op.operands[consts : consts + carry]]
    for result in op.results:
        b.define(result)
    slices = [
        _slice(b, op, place, shape(arg), length)
        for place, arg in zip(places[:stacked], body.args[consts + carry :], strict=True)
    ]
    outside = [*places[stacked:], *map(b.define, op.results[:carry]), *slices]
    for source, arg in zip(outside, body.args, strict=True):
        b.edge(op, (Use(source, UNSEEN),), b.define(arg), shape(arg))
    b.block(body)
    returned = [_behind(b, op, b.use(value), shape(value)) for value in body.results]
    targets, stacks = op.results[:carry], op.results[carry:]
    updated = [
        _update(b, op, b.holder_of[stack], source, shape(value), length)
        for stack, source, value in zip(stacks, returned[carry:], body.results[carry:], strict=True)
    ]
    for value, init, place in zip(kept, inits, places, strict=True):
        b.edge(op, (init, Use(place)), place, shape(value), after=True)
    empty = [Use(b.graph.holder(None, len(shape(stack)))) for stack in stacks]
    backs = [Use(holder) for holder in (*returned[:carry], *updated)]
    for init, back, result in zip((*started, *empty), backs, (*targets, *stacks), strict=True):
        b.edge(op, (init, back), b.holder_of[result], shape(result), after=True)


def _behind(b: "Builder", op: Op, source: Use, shape: Shape) -> int:
    """A place behind an edge: the result of a call."""
    holder = b.graph.holder(None, len(shape))
    b.edge(op, (source,), holder, shape, after=True)
    return holder


def _slice(b: "Builder", op: Op, stack: int, shape: Shape, length: int) -> int:
    """Call a function that takes one slice from a stacked array; returns the place of its result."""
    rank = len(shape)
    whole, one, slice_ = (b.graph.holder(None, n) for n in (rank + 1, rank + 1, rank))
    b.edge(op, (Use(stack, UNSEEN),), whole, (length, *shape))
    all_, inner = _factors(0, rank + 1), _factors(1, rank + 1)
    sizes = (length, *shape)
    cut = frozenset({0}) if length > 1 else frozenset()
    taken = StepRule(sizes, (all_,), (all_,), cut, tuple(f not in cut for f in range(rank + 1)))
    _inner_node(b, op, (whole,), one, taken, OpClass.SLICE)
    _inner_node(b, op, (one,), slice_, _passing((1, *shape), (all_,), inner), OpClass.PASS_THROUGH)
    place = b.graph.holder(None, rank)
    b.edge(op, (Use(slice_),), place, shape)
    return place


def _update(b: "Builder", op: Op, stack: int, source: int, shape: Shape, length: int) -> int:
    """Call a function that puts one slice into a stacked array; returns the place of its result."""
    rank = len(shape)
    before, slice_, one, new = (b.graph.holder(None, n) for n in (rank + 1, rank, rank + 1, rank + 1))
    b.edge(op, (Use(stack, UNSEEN),), before, (length, *shape), after=True)
    b.edge(op, (Use(source, UNSEEN),), slice_, shape, after=True)
    all_, inner = _factors(0, rank + 1), _factors(1, rank + 1)
    _inner_node(b, op, (slice_,), one, _passing((1, *shape), (inner,), all_), OpClass.BROADCAST, after=True)
    put: TensorFactors = all_ if length == 1 else ((rank + 1,), *inner)
    rule = StepRule((length, *shape, 1), (all_, put), (all_,), frozenset(), (*(True,) * (rank + 1), False))
    _inner_node(b, op, (before, one), new, rule, OpClass.SLICE, after=True)
    return _behind(b, op, Use(new), (length, *shape))


def _factors(first: int, end: int) -> TensorFactors:
    return tuple((f,) for f in range(first, end))


def _passing(sizes: Shape, operands: tuple[TensorFactors, ...], result: TensorFactors) -> StepRule:
    return StepRule(sizes, operands, (result,), frozenset(), (True,) * len(sizes))


def _inner_node(
    b: "Builder", op: Op, operands: tuple[int, ...], result: int, rule: StepRule, op_class: OpClass, *,
    after: bool = False,
) -> None:  # fmt: skip
    node = Node(operands, (result,), b.graph.steps.rule_number(rule), op_class, op=op.id)
    b.slot(op.id, after=after).append((node, tuple(map(Use, operands))))
