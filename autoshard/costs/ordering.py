"""Where a compiler's freedom could take more memory than a plan may hold, and what must be kept in order therefore.

Memory is simulated in the order of the program, with every copy of the schedule. Compilers merge equal collectives: a
weight that is gathered for the forward pass and again for the backward pass is then held in between. They may put off
what only the end of a program needs (the gradient of an output head) until a loop has run, and hold all that it reads
(logits) meanwhile; or gather what a loop reads long before it starts. And the TPU compiler copies a donated weight
that loops read whole and that is gathered again in the end, before the first of these loops. Where these could exceed
what the plan may hold, `Order` says what to keep as planned.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoshard.costs.liveness import Liveness, Size, analyse, only_uses, replaced_inputs
from autoshard.costs.memory import Held, holdings, sizes
from autoshard.costs.padding import Tile
from autoshard.program.order import LOOPS, NOTHING, Order
from autoshard.program.program import Block, Op, Program
from autoshard.program.schedule import PROGRAM, Schedule, Use
from autoshard.sharding.steps import Step

LEAST_SHARE: Final = 0.001
"""Of what a plan may hold: where a loop could come first and less than this were held for longer, it may."""


@dataclass(frozen=True, slots=True)
class _Longer:
    """`bytes` that may be held from time `start` up to, not including, `stop`, beside what the simulation counts."""

    start: int
    stop: int
    bytes: int


def order_to_keep(
    program: Program, schedule: Schedule, liveness: Liveness, tile: Tile | None, allowed_bytes: int
) -> Order:
    """What to keep in order so that a device holds at most `allowed_bytes`, as simulated.

    liveness: of the program under any schedule; tile: of the machine's memory. Nothing where the peak stays within
    these bytes in any case.
    """
    held = holdings(program, schedule, liveness, tile)
    if sum(item.bytes for item in held) <= allowed_bytes:
        return NOTHING  # even if nothing were ever freed
    size = sizes(program, schedule.mesh, tile, liveness.fusion.twice)
    live = analyse(program, liveness.fusion, schedule, size)
    again, merged = _made_again(program, schedule, live, size)
    finished, later = _finished(program, schedule, live, size, int(allowed_bytes * LEAST_SHARE))
    over, copied = _written_over(program, schedule, live, size)
    could = _peak(held, [*merged, *later, *copied], live.points)
    if could <= allowed_bytes:
        return NOTHING
    # what costs the step nothing is kept first: without the copies, then without delays; then nothing is merged either
    if _peak(held, [*merged, *later], live.points) <= allowed_bytes:
        return Order(over=over, could_hold_bytes=could)
    if _peak(held, merged, live.points) <= allowed_bytes:
        return Order(finished=finished, over=over, could_hold_bytes=could)
    return Order(again, finished, over, could)


def _peak(held: list[Held], longer: list[_Longer], points: int) -> int:
    delta = np.zeros(points + 2, np.int64)
    for item in (*held, *longer):
        delta[item.start] += item.bytes
        delta[item.stop] -= item.bytes
    return int(np.cumsum(delta).max())


def _blocks(program: Program) -> Iterator[tuple[Block, tuple[int, int]]]:
    """Every block with the op and the number of the region that it is; bodies of a user's shard_map left out."""
    yield program.body, (PROGRAM, -1)
    for op, outer in program.walk():
        if op.kind != "shard_map" and all(o.kind != "shard_map" for o in outer):
            for number, region in enumerate(op.regions):
                yield region, (op.id, number)


def _made_again(
    program: Program, schedule: Schedule, live: Liveness, size: Size
) -> tuple[frozenset[Use], list[_Longer]]:
    """Uses that gather what an op before has gathered as well, and the times between in which a merged copy is held."""
    again, longer = set(), []
    for block, owner in _blocks(program):
        uses = [(value, Use(op.id, slot)) for op in block.ops for slot, value in enumerate(op.operands)]
        uses += [(value, Use(owner[0], slot, owner[1])) for slot, value in enumerate(block.results)]
        before: dict[tuple[int, tuple[Step, ...]], Use] = {}
        for value, use in uses:
            reshard = schedule.uses.get(use)
            if reshard is None or size(value, reshard.target) <= size(value, reshard.source):
                continue
            first = before.get((value, reshard.steps))
            before[value, reshard.steps] = use
            if first is None or (first.op == use.op and first not in again):
                continue
            again.add(use)
            if first in live.private and use in live.private:
                gap = live.private[first][1], live.private[use][0]
                if gap[0] < gap[1]:
                    longer.append(_Longer(*gap, size(value, reshard.target)))
    return frozenset(again), longer


def _finished(
    program: Program, schedule: Schedule, live: Liveness, size: Size, least_bytes: int
) -> tuple[dict[int, tuple[int, ...]], list[_Longer]]:
    """By loop the values that it does not need and that are read after it, and what may be held meanwhile.

    Loops because of which less than `least_bytes` would be held longer are left out.
    """
    finished: dict[int, tuple[int, ...]] = {}
    longer: dict[int, _Longer] = {}
    gathered: list[_Longer] = []
    listed: set[int] = set()
    only_use = only_uses(program)
    computed = {value for op, _ in program.walk() for value in op.results}

    def exists(value: int, op: Op) -> bool:
        """Whether a result is in memory, or could be in place of an operand that nothing else reads."""
        if value in live.interval or value in live.shared or only_use.get(value) in live.private:
            return True
        size_bytes = size(value, schedule.definitions[value])
        for slot, operand in enumerate(op.operands):
            use = Use(op.id, slot)
            if operand in computed and only_use.get(operand) == use and use in schedule.uses:
                if size_bytes <= size(operand, schedule.uses[use].target):
                    return True
        return False

    def kept_until(value: int, end: int) -> _Longer | None:
        copied = value in live.shared or value in live.cut
        span = (live.shared if value in live.shared else live.cut if copied else live.interval).get(value)
        if span is None or span[1] >= end:
            return None
        form = schedule.form_before_use(value) if copied else schedule.definitions[value]
        return _Longer(span[1], end, size(value, form))

    for block, _ in _blocks(program):
        made_by = {value: k for k, op in enumerate(block.ops) for value in op.results}
        last_read = _last_reads(block)
        for index, op in enumerate(block.ops):
            if op.kind not in LOOPS:
                continue
            needed = _needed(block.ops, index, made_by)
            free = set(range(index)) - needed
            later = [(v, block.ops[k]) for k in sorted(free) for v in block.ops[k].results if last_read[v] > index]
            values = [v for v, maker in later if v not in listed and exists(v, maker)]
            start, end = live.span[op.id][0], live.span[op.id][1] + 1
            read = {v for k in free for v in block.ops[k].operands if made_by.get(v) not in free} if values else set()
            kept = {v: k for v in sorted(read) if (k := kept_until(v, end)) is not None}
            loops = [o for o in block.ops[:index] if o.kind in LOOPS]
            since = live.span[loops[-1].id][1] + 1 if loops else live.time[block.ops[0].id]
            early = list(_early(op, schedule, live, size, since, start))
            if sum(k.bytes for k in (*kept.values(), *early)) < least_bytes:
                continue
            finished[op.id] = tuple(values)
            listed.update(values)
            longer |= kept
            gathered += early
    return finished, [*longer.values(), *gathered]


def _early(loop: Op, schedule: Schedule, live: Liveness, size: Size, since: int, start: int) -> Iterator[_Longer]:
    """Copies larger than their value that a loop reads, from when the loop before it is over until it starts."""
    for slot, value in enumerate(loop.operands):
        use = Use(loop.id, slot)
        reshard = schedule.uses.get(use)
        if reshard is None or use not in live.private or since >= start:
            continue
        if size(value, reshard.target) > size(value, reshard.source):
            yield _Longer(since, start, size(value, reshard.target))


def _written_over(
    program: Program, schedule: Schedule, live: Liveness, size: Size
) -> tuple[frozenset[int], list[_Longer]]:
    """Outputs that are gathered in place of donated inputs that loops read as they lie, and the copies of these."""
    in_loops = {
        value for op in program.body.ops if op.kind in LOOPS
        for slot, value in enumerate(op.operands)
        if (reshard := schedule.uses.get(Use(op.id, slot))) is not None and not reshard.steps
    }  # fmt: skip
    over, copied = [], []
    for slot, value in replaced_inputs(program).items():
        reshard = schedule.uses.get(Use(PROGRAM, slot))
        made = program.body.results[slot]
        if value not in in_loops or reshard is None or value in schedule.shared:
            continue
        if size(made, reshard.target) > size(made, reshard.source):
            over.append(slot)
            copied.append(
                _Longer(live.reads[value][0], live.reads[value][1] + 1, size(value, schedule.definitions[value]))
            )
    return frozenset(over), copied


def _last_reads(block: Block) -> dict[int, int]:
    """For each value the number of the last op of the block that reads it; results of the block are read last."""
    last: dict[int, int] = defaultdict(int)
    for k, op in enumerate(block.ops):
        last.update(dict.fromkeys(op.operands, k))
    last.update(dict.fromkeys(block.results, len(block.ops)))
    return last


def _needed(ops: tuple[Op, ...], index: int, made_by: dict[int, int]) -> set[int]:
    """The ops before ops[index] that it depends on."""
    needed: set[int] = set()
    waiting = [index]
    while waiting:
        for value in ops[waiting.pop()].operands:
            k = made_by.get(value)
            if k is not None and k not in needed:
                needed.add(k)
                waiting.append(k)
    return needed
