"""Region ops in a program's graph: edges that tie inits, arguments, returned values and results (S2.39 to S2.42)."""

from typing import TYPE_CHECKING

from autoshard.errors import UnsupportedError
from autoshard.program.program import Block, Op
from autoshard.propagation.graph import NO_HOLDER
from autoshard.propagation.program.order import IN_BODY, IN_CONDITION, Use
from autoshard.propagation.program.scans import add_scan

if TYPE_CHECKING:
    from autoshard.propagation.program.graph import Builder


def region_op(b: "Builder", op: Op) -> None:
    """Add the edges of a region op, and the nodes of its bodies."""
    match op.kind:
        case "scan":
            add_scan(b, op)
        case "while":
            _while(b, op)
        case "cond":
            _cond(b, op)
        case "shard_map":
            _shard_map(b, op)
        case _:
            raise UnsupportedError(f"op {op.id}: propagation through the region op {op.kind!r} is not supported")


def _while(b: "Builder", op: Op) -> None:
    """One edge behind the loop per operand (S2.41). The init and what the body hands back feed arguments and result.

    Constants are carried too: the body hands them back as they are.
    """
    n_cond, n_body = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
    cond, body = op.regions
    inits = [b.use(value, op) for value in op.operands]
    targets = [b.define(arg) for arg in (*cond.args[:n_cond], *body.args[:n_body])]
    for result, *args in zip(op.results, cond.args[n_cond:], body.args[n_body:], strict=True):
        holder = b.define(result)
        targets.append(holder)
        for arg in args:
            b.holder_of[arg] = holder
            if b.graph.holders[holder] < 0 and arg in b.specs:
                b.graph.holders[holder] = b.graph.steps.number(b.specs[arg])
    b.carried.update((arg, IN_CONDITION) for arg in cond.args)
    b.carried.update((arg, IN_BODY) for arg in body.args)
    b.block(cond)
    for value in cond.results:
        b.use(value)
    b.block(body)
    for_cond = [Use(holder, IN_BODY) for holder in targets[:n_cond]]  # of which the body makes no other use
    consts = [b.handed_back.get(arg, arg) for arg in body.args[:n_body]]
    returned = [*for_cond, *map(b.use, (*consts, *body.results))]
    for init, back, target, value in zip(inits, returned, targets, op.operands, strict=True):
        b.edge(op, (init, back), target, b.program.type_of(value).shape, after=True)


def _cond(b: "Builder", op: Op) -> None:
    """One edge per result, from what the branches hand back; branches take values from outside as they are."""
    for block in op.regions:
        for value, arg in zip(op.operands[1:], block.args, strict=True):
            if arg not in b.captured:
                b.edge(op, (b.use(value, op),), b.define(arg), b.program.type_of(arg).shape)
    for result in op.results:
        b.define(result)
    for block in op.regions:
        b.block(block)
    for index, result in enumerate(op.results):
        sources = [b.use(block.results[index]) for block in op.regions]
        b.edge(op, sources, b.holder_of[result], b.program.type_of(result).shape, after=True)


def _shard_map(b: "Builder", op: Op) -> None:
    """Give operands and results their stated shardings; the body works on local shapes and gets none."""
    for value in op.operands:
        b.use(value)
    for result in op.results:
        b.define(result)
    for block in op.regions:
        _mute(b, block)


def _mute(b: "Builder", block: Block) -> None:
    for arg in block.args:
        b.holder_of[arg] = NO_HOLDER
    for op in block.ops:
        for result in op.results:
            b.holder_of[result] = NO_HOLDER
        for region in op.regions:
            _mute(b, region)
