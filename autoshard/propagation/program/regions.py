"""Region ops in a program's graph: edges that tie inits, arguments, returned values and results (S2.39 to S2.42)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autoshard.errors import UnsupportedError
from autoshard.program.program import Block, Op
from autoshard.program.rule import TensorFactors
from autoshard.propagation.directions import OpClass
from autoshard.propagation.graph import NO_HOLDER, Node
from autoshard.propagation.step import StepRule, identity_rule

if TYPE_CHECKING:
    from autoshard.propagation.program.graph import Builder


def _shape(b: "Builder", value: int) -> tuple[int, ...]:
    return b.program.type_of(value).shape


def _tie(b: "Builder", op: Op, source: int, target: int) -> None:
    """One edge from a use of `source` to the holder of `target`."""
    b.edge(op, (b.use(source),), b.holder_of[target], identity_rule(_shape(b, target)))


def region_op(b: "Builder", op: Op) -> None:
    """Add the edges of a region op, and the nodes of its bodies."""
    match op.kind:
        case "scan":
            _scan(b, op)
        case "while":
            _while(b, op)
        case "cond":
            _cond(b, op)
        case "shard_map":
            _shard_map(b, op)
        case _:
            raise UnsupportedError(f"op {op.id}: propagation through the region op {op.kind!r} is not supported")


def _loop(b: "Builder", op: Op, inits: Sequence[int], bodies: Sequence[Block], args: Sequence[Sequence[int]]) -> None:
    """Add one edge per carried value (S2.41).

    The init and what the body hands back feed the arguments and the result.
    """
    for index, (init, result) in enumerate(zip(inits, op.results, strict=False)):
        holder = b.define(result)
        for block_args in args:
            b.holder_of[block_args[index]] = holder
            b.carried.add(block_args[index])
            if b.graph.holders[holder] < 0 and block_args[index] in b.specs:
                b.graph.holders[holder] = b.graph.steps.number(b.specs[block_args[index]])
        _late(b, op, init, holder, _shape(b, result))
    for block in bodies:
        b.block(block)


def _late(b: "Builder", op: Op, init: int, holder: int, shape: tuple[int, ...]) -> None:
    """An edge whose second source, the body's result, is known only after the body was walked."""
    node = Node(
        (b.use(init),),
        (holder,),
        b.graph.steps.rule_number(identity_rule(shape, 2)),
        OpClass.PASS_THROUGH,
        heeds_conservative=False,
        op=op.id,
    )
    b.pending.setdefault(op.id, []).append(node)


def _close_loop(b: "Builder", op: Op, results: Sequence[int]) -> None:
    edges = b.pending.pop(op.id, [])
    for node, result in zip(edges, results, strict=True):
        node.operands = (*node.operands, b.use(result))
    b.slot(op.id, after=True).extend(edges)


def _while(b: "Builder", op: Op) -> None:
    n_cond, n_body = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
    cond, body = op.regions
    for source, arg in zip(op.operands[:n_cond], cond.args[:n_cond], strict=True):
        b.define(arg)
        _tie(b, op, source, arg)
    for source, arg in zip(op.operands[n_cond : n_cond + n_body], body.args[:n_body], strict=True):
        b.define(arg)
        _tie(b, op, source, arg)
    carries = (cond.args[n_cond:], body.args[n_body:])
    _loop(b, op, op.operands[n_cond + n_body :], (cond, body), carries)
    for value in cond.results:
        b.use(value)
    _close_loop(b, op, body.results)


def _scan(b: "Builder", op: Op) -> None:
    n_consts, n_carry, length = op.attrs["num_consts"], op.attrs["num_carry"], op.attrs["length"]
    (body,) = op.regions
    for source, arg in zip(op.operands[:n_consts], body.args[:n_consts], strict=True):
        b.define(arg)
        _tie(b, op, source, arg)
    for source, arg in zip(op.operands[n_consts + n_carry :], body.args[n_consts + n_carry :], strict=True):
        b.define(arg)
        b.edge(op, (b.use(source),), b.holder_of[arg], _stack_rule(length, _shape(b, arg), False))
    for result in op.results[n_carry:]:
        b.define(result)
    carries = (body.args[n_consts : n_consts + n_carry],)
    _loop(b, op, op.operands[n_consts : n_consts + n_carry], (body,), carries)
    _close_loop(b, op, body.results[:n_carry])
    for source, result in zip(body.results[n_carry:], op.results[n_carry:], strict=True):
        rule = _stack_rule(length, _shape(b, source), True)
        b.edge(op, (b.use(source),), b.holder_of[result], rule, after=True)


def _cond(b: "Builder", op: Op) -> None:
    for block in op.regions:
        for source, arg in zip(op.operands[1:], block.args, strict=True):
            b.define(arg)
            _tie(b, op, source, arg)
    for result in op.results:
        b.define(result)
    for block in op.regions:
        b.block(block)
    for index, result in enumerate(op.results):
        sources = tuple(b.use(block.results[index]) for block in op.regions)
        rule = identity_rule(_shape(b, result), len(sources))
        b.edge(op, sources, b.holder_of[result], rule, after=True)


def _shard_map(b: "Builder", op: Op) -> None:
    """Give operands and results their stated shardings; the body works on local shapes and gets none."""
    for value in op.operands:
        b.use(value)
    for result in op.results:
        b.define(result)
    for block in op.regions:
        for value in (*block.args, *(r for o in block.ops for r in o.results)):
            b.holder_of[value] = NO_HOLDER
        for inner in block.ops:
            for region in inner.regions:
                _mute(b, region)


def _mute(b: "Builder", block: Block) -> None:
    for arg in block.args:
        b.holder_of[arg] = NO_HOLDER
    for op in block.ops:
        for result in op.results:
            b.holder_of[result] = NO_HOLDER
        for region in op.regions:
            _mute(b, region)


def _stack_rule(length: int, shape: tuple[int, ...], stacking: bool) -> StepRule:
    """Between a slice and the stacked array it comes from or goes to; the stacked dimension passes nothing."""
    slice_: TensorFactors = tuple((i,) for i in range(len(shape)))
    stacked: TensorFactors = ((len(shape),), *slice_)
    sizes = (*shape, length)
    passes = (True,) * len(sizes)
    operand, result = (slice_, stacked) if stacking else (stacked, slice_)
    return StepRule(sizes, (operand,), (result,), frozenset(), passes)
