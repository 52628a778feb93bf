"""A program under construction: its values and ops have no ids yet, so that ops can be added and removed.

A front end writes a draft, `prune` removes ops that no output depends on, and `number` turns the draft into the blocks
and values of a `Program`, whose ids are consecutive in execution order and therefore the same on every run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any, TypeVar

from autoshard.program.program import ALIKE, BORDER, Block, Op, Origin, Value, alike_tag
from autoshard.program.rule import ShardingRule
from autoshard.program.types import TensorType

Scalar = bool | int | float | complex
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class DraftValue:
    """A value without id, compared by identity. Where `name` is empty, `number` makes a name."""

    type: TensorType
    origin: Origin
    name: str = ""
    tags: list[str] = field(default_factory=list)
    literal: Scalar | None = None

    def tag(self, name: str) -> None:
        """Add a tag, once."""
        if name not in self.tags:
            self.tags.append(name)


@dataclass(eq=False, slots=True)
class DraftBlock:
    """A block under construction; see `Block`."""

    args: list[DraftValue]
    ops: list["DraftOp"] = field(default_factory=list)
    results: list[DraftValue] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class DraftOp:
    """An op without id; `origin` is the front end's own object for running the op again."""

    kind: str
    operands: list[DraftValue]
    results: list[DraftValue]
    source: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)
    regions: list[DraftBlock] = field(default_factory=list)
    origin: Any = None


def literal(value: Scalar, dtype: str) -> DraftValue:
    """A scalar written into the program. Every NaN is the same object, so that equal programs compare equal."""
    if isinstance(value, float) and value != value:
        value = nan
    return DraftValue(TensorType((), dtype), Origin.LITERAL, f"literal:{value!r}:{dtype}", literal=value)


def arg_operands(op: DraftOp) -> list[list[int]]:
    """For every region of a region op, the index of the operand that feeds each block argument.

    The table of region ops in docs/architecture.md describes the same.
    """
    every = list(range(len(op.operands)))
    match op.kind:
        case "scan" | "shard_map":
            return [every]
        case "while":
            cond, body = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
            carries = every[cond + body :]
            return [every[:cond] + carries, every[cond : cond + body] + carries]
        case "cond":
            return [every[1:] for _ in op.regions]
    raise AssertionError(f"{op.kind} is not a region op")


# -- dead code -------------------------------------------------------------------------------------------------


def live_values(block: DraftBlock, needed: Sequence[bool]) -> set[DraftValue]:
    """Values of `block` that its `needed` results depend on."""
    live = set(_keep(block.results, needed))
    for op in reversed(block.ops):
        wanted = [r in live for r in op.results]
        if any(wanted):
            operands = _needs(op, wanted)[0] if op.regions else [True] * len(op.operands)
            live.update(_keep(op.operands, operands))
    return live


def prune(block: DraftBlock, needed: Sequence[bool]) -> None:
    """Remove, in place, ops that no needed result depends on, in regions too; drop the other results of `block`.

    Dead carries, stacked results, operands and block arguments of region ops are removed too. A carry is dead when
    neither its result nor any live op of the body depends on it. All ops count as pure, a `while` included (as in JAX's
    own dead-code elimination). Arguments of `block` itself stay. A value that belongs to a sharding group by an op that
    is removed belongs to it itself, by a tag (``_, b = shard_alike(a, b)``). The sharding of an argument stays, though
    nothing reads it: a caller has the argument there.
    """
    block.results = _keep(block.results, needed)
    live = set(block.results)
    kept: list[DraftOp] = []
    for op in reversed(block.ops):
        wanted = [r in live for r in op.results]
        if not any(wanted) and op.attrs.get(BORDER) != "in_shardings":
            if ALIKE in op.attrs:
                op.operands[0].tag(alike_tag(op.attrs[ALIKE]))
            continue
        if op.regions:
            _prune_region_op(op, wanted)
        live.update(op.operands)
        kept.append(op)
    block.ops = kept[::-1]


def _prune_region_op(op: DraftOp, wanted: Sequence[bool]) -> None:
    operands, results, region_results = _needs(op, wanted)
    for region, sources, needed in zip(op.regions, arg_operands(op), region_results, strict=True):
        region.args = _keep(region.args, [operands[k] for k in sources])
        prune(region, needed)
    match op.kind:
        case "scan":
            consts, carry = op.attrs["num_consts"], op.attrs["num_carry"]
            op.attrs["num_consts"] = sum(operands[:consts])
            op.attrs["num_carry"] = sum(results[:carry])
        case "while":
            cond, body = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
            op.attrs["cond_nconsts"] = sum(operands[:cond])
            op.attrs["body_nconsts"] = sum(operands[cond : cond + body])
        case "shard_map":
            op.attrs["in_names"] = tuple(_keep(op.attrs["in_names"], operands))
            op.attrs["out_names"] = tuple(_keep(op.attrs["out_names"], results))
    op.operands = _keep(op.operands, operands)
    op.results = _keep(op.results, results)


def _needs(op: DraftOp, wanted: Sequence[bool]) -> tuple[list[bool], list[bool], list[list[bool]]]:
    """Masks of what a region op with `wanted` results keeps: operands, results, results of each region.

    Loops are a fixed point: a carry is kept when its result is wanted or a kept part of the body reads it.
    """
    sources = arg_operands(op)
    wanted = list(wanted)
    operands = [False] * len(op.operands)
    if op.kind == "cond":
        operands[0] = True
    while True:
        region_results = [wanted] * len(op.regions)
        if op.kind == "while":
            region_results = [[True], wanted]
        for region, feeding, needed in zip(op.regions, sources, region_results, strict=True):
            live = live_values(region, needed)
            for arg, k in zip(region.args, feeding, strict=True):
                operands[k] = operands[k] or arg in live
        if op.kind == "scan":
            first, count = op.attrs["num_consts"], op.attrs["num_carry"]
        elif op.kind == "while":
            first, count = op.attrs["cond_nconsts"] + op.attrs["body_nconsts"], len(op.results)
        else:
            return operands, wanted, region_results
        carries = [w or operands[first + k] for k, w in enumerate(wanted[:count])]
        if carries == wanted[:count]:
            operands[first : first + count] = carries
            return operands, wanted, region_results
        wanted = carries + wanted[count:]


def _keep(items: Sequence[T], mask: Sequence[bool]) -> list[T]:
    return [item for item, kept in zip(items, mask, strict=True) if kept]


# -- marks -----------------------------------------------------------------------------------------------------

_KEEPS_ZERO = frozenset(
    {
        "convert_element_type",
        "copy",
        "copy_p",
        "reshape",
        "transpose",
        "neg",
        "broadcast_in_dim",
        "squeeze",
        "expand_dims",
    }
)


def mark_zeros(block: DraftBlock) -> None:
    """Set ``attrs["zero"]`` on ops whose result is all zeros: broadcasts of 0, and ops that only move or convert zeros.

    Such a result is a valid partial sum over any axis for free. Booleans are left out, because they are never added up.
    """
    zeros: set[DraftValue] = set()
    for op in block.ops:
        for region in op.regions:
            mark_zeros(region)
        if op.kind in _KEEPS_ZERO and len(op.operands) == 1 and op.results[0].type.dtype != "bool":
            operand = op.operands[0]
            if operand in zeros or (operand.literal is not None and operand.literal == 0):
                op.attrs["zero"] = True
                zeros.add(op.results[0])


# -- numbering -------------------------------------------------------------------------------------------------

RuleOf = Callable[[DraftOp, bool], ShardingRule]
"""The rule of an op without regions; the flag says that it lies in a `shard_map`, where nothing is planned."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """The frozen form of a draft; `origins` keeps each op's `DraftOp.origin` by op id."""

    values: tuple[Value, ...]
    body: Block
    origins: dict[int, Any]


def number(body: DraftBlock, rule_of: RuleOf) -> Numbered:
    """Give values and ops ids in execution order (an op before its regions), and a name to every value.

    Block arguments are named after the operand that feeds them (``scan:5/state/w``), results after their
    op (``dot_general:12``, ``split:7.0``); barrier groups are renumbered from 0.
    """
    state = _Numbering(rule_of)
    block = state.block(body, in_shard_map=False)
    values = tuple(state.freeze(v, name) for v, name in zip(state.order, state.names, strict=True))
    return Numbered(values, block, dict(sorted(state.origins.items())))


class _Numbering:
    """Counters of one `number` call."""

    def __init__(self, rule_of: RuleOf) -> None:
        self.rule_of = rule_of
        self.ids: dict[DraftValue, int] = {}
        self.order: list[DraftValue] = []
        self.names: list[str] = []
        self.taken: set[str] = set()
        self.origins: dict[int, Any] = {}
        self.barriers: dict[int, int] = {}
        self.next_op = 0

    def define(self, value: DraftValue, name: str) -> int:
        if value in self.ids:
            return self.ids[value]
        unique, count = name, 1
        while unique in self.taken:
            count += 1
            unique = f"{name}~{count}"
        self.taken.add(unique)
        self.ids[value] = len(self.order)
        self.order.append(value)
        self.names.append(unique)
        return self.ids[value]

    def use(self, value: DraftValue) -> int:
        return self.define(value, value.name) if value.origin is Origin.LITERAL else self.ids[value]

    def freeze(self, value: DraftValue, name: str) -> Value:
        return Value(self.ids[value], name, value.type, value.origin, tuple(value.tags), value.literal)

    def block(self, draft: DraftBlock, in_shard_map: bool) -> Block:
        args = tuple(self.define(a, a.name) for a in draft.args)
        ops = tuple(self.op(op, in_shard_map) for op in draft.ops)
        return Block(args, ops, tuple(self.use(r) for r in draft.results))

    def op(self, op: DraftOp, in_shard_map: bool) -> Op:
        index = self.next_op
        self.next_op += 1
        self.origins[index] = op.origin
        operands = tuple(self.use(v) for v in op.operands)
        regions = []
        if op.regions:
            for r, (region, sources) in enumerate(zip(op.regions, arg_operands(op), strict=True)):
                label = f"{op.kind}:{index}" if len(op.regions) == 1 else f"{op.kind}:{index}.{_region_name(op, r)}"
                for arg, k in zip(region.args, sources, strict=True):
                    fed = op.operands[k]
                    arg.name = f"{label}/{f'arg{k}' if fed.origin is Origin.LITERAL else self.names[self.ids[fed]]}"
                regions.append(self.block(region, in_shard_map or op.kind == "shard_map"))
        attrs = dict(op.attrs)
        if "barrier_group" in attrs:
            attrs["barrier_group"] = self.barriers.setdefault(attrs["barrier_group"], len(self.barriers))
        base = f"{op.kind}:{index}"
        results = tuple(
            self.define(v, v.name or (base if len(op.results) == 1 else f"{base}.{k}"))
            for k, v in enumerate(op.results)
        )
        rule = None if op.regions else self.rule_of(op, in_shard_map)
        return Op(index, op.kind, operands, results, rule, op.source, attrs, tuple(regions))


def _region_name(op: DraftOp, region: int) -> str:
    return ("cond", "body")[region] if op.kind == "while" else f"branch{region}"
