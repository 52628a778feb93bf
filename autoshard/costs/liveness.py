"""When each value is live: half-open intervals over the program in execution order.

Time counts ops, bodies of loops included (one pass stands for every trip). What a loop reads from outside
lives through the loop; its stacked results exist from its start, its carries for its duration.
"""

from dataclasses import dataclass

from autoshard.costs.fusion import Fusion
from autoshard.program.program import Block, Op, Origin, Program

Interval = tuple[int, int]


@dataclass(frozen=True)
class Liveness:
    """time[op id]: when it runs; span[op id]: first and last time of it and its bodies (inclusive).

    interval[value]: when the *definition* of a materialised value is held, absent for virtual ones and for
    arguments of bodies that are read in place.
    reads[value]: first and last time a use of the value is read, through virtual values.
    points: number of points in time.
    """

    time: dict[int, int]
    span: dict[int, Interval]
    interval: dict[int, Interval]
    reads: dict[int, Interval]
    points: int


def analyse(program: Program, fusion: Fusion) -> Liveness:
    """Liveness of every value of `program`."""
    time: dict[int, int] = {}
    span: dict[int, Interval] = {}

    def number(block: Block, now: int) -> int:
        for op in block.ops:
            time[op.id] = now
            start, now = now, now + 1
            if op.kind != "shard_map":
                for region in op.regions:
                    now = number(region, now)
            span[op.id] = (start, now - 1)
        return now

    points = number(program.body, 1) + 1  # time 0 is before, the last after all ops
    interval: dict[int, Interval] = {}
    reads: dict[int, Interval] = {}
    _block(program, program.body, fusion, time, span, interval, reads, points - 1)
    outputs = set(program.body.results)
    for index, value in enumerate(program.body.args):
        last = reads.get(value, (0, 0))[1]
        donated = index in program.donated
        interval[value] = (0, last + 1 if donated and value not in outputs else points)
    _take_over(program, interval, reads, time)
    return Liveness(time, span, interval, reads, points)


def _block(
    program: Program,
    block: Block,
    fusion: Fusion,
    time: dict[int, int],
    span: dict[int, Interval],
    interval: dict[int, Interval],
    reads: dict[int, Interval],
    end: int,
) -> None:
    """Fill in one block whose results are read at time `end`."""

    def read(value: int, first: int, last: int) -> None:
        if program.values[value].origin is Origin.LITERAL:
            return
        old = reads.get(value)
        reads[value] = (first, last) if old is None else (min(old[0], first), max(old[1], last))

    for value in block.results:
        read(value, end, end)
    for op in reversed(block.ops):
        start, last = span[op.id]
        if op.regions and op.kind != "shard_map":
            for region in op.regions:
                _block(program, region, fusion, time, span, interval, reads, last)
        results_last = max((reads[r][1] for r in op.results if r in reads and r not in fusion), default=last)
        through = max(last, results_last)
        for slot, value in enumerate(op.operands):
            # the initial value of a carry is copied into the loop's buffer and not needed after that
            read(value, start, start if _starts_carry(op, slot) else through)
        for index, result in enumerate(op.results):
            if result in fusion:
                stop = max(reads.get(result, (last, last))[1], last) + 1
                interval[result] = (_defined(op, index, start, last), stop)


def _starts_carry(op: Op, slot: int) -> bool:
    if op.kind == "scan":
        return 0 <= slot - op.attrs["num_consts"] < op.attrs["num_carry"]
    return op.kind == "while" and slot >= op.attrs["cond_nconsts"] + op.attrs["body_nconsts"]


def _defined(op: Op, index: int, start: int, last: int) -> int:
    if op.kind == "scan":
        return last if index < op.attrs["num_carry"] else start
    return last if op.regions else start


def _take_over(
    program: Program, interval: dict[int, Interval], reads: dict[int, Interval], time: dict[int, int]
) -> None:
    """A pointwise result is written in place of an operand of the same type that dies there."""
    for op, _ in program.walk():
        if op.regions or op.rule is None or len(op.results) != 1 or op.results[0] not in interval:
            continue
        if not _pointwise(op):
            continue
        now = time[op.id]
        for value in op.operands:
            held = interval.get(value)
            same = program.type_of(value).bytes == program.type_of(op.results[0]).bytes
            if held is not None and held[1] == now + 1 and held[0] < now and same:
                interval[value] = (held[0], now)
                break


def _pointwise(op: Op) -> bool:
    assert op.rule is not None
    return not op.rule.reduction and all(t == op.rule.results[0] or not any(t) for t in op.rule.operands)
