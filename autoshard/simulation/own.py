"""Our own scheduler, for machines whose compiler is not here: a plan's ops in order, its collectives beside them.

What the plan knows is taken as it is: seconds of ops (rooflines) and of collectives. The core runs ops in the order of
the program. A collective of a kind that the machine's profile says can overlap begins when its value exists and its
links are free for so long, and is waited for where it is used; one of another kind is waited for at once. Memory does
not hold it back, so the result is what a scheduler without limits would reach. A collective never begins before its
block does: what the next layer of a loop needs is not fetched during this one.

A plan handed over as constraints has the same collectives here, but for those that XLA's partitioner is known to take
apart: on v5e the reduce-scatter of a weight's gradient becomes a loop of permutes beside its matmul (`windowed`).
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from autoshard.costs.critical import Role, matmul_order
from autoshard.costs.exposure import hidden_share
from autoshard.costs.manual import body_trips, ops_in_body
from autoshard.costs.price import CommRow, When, multiplicities
from autoshard.costs.steptime import axis_parts, whole_bytes
from autoshard.costs.work import is_matmul
from autoshard.plan_record import PlanRecord
from autoshard.program.program import Block, Op
from autoshard.program.schedule import PROGRAM
from autoshard.simulation.clock import COPIES, COPY, CORE, LOOPS, MATMUL, OTHER_WORK, Event, Timeline, waiting

WINDOWS: Final = ("tpu_v5e",)
"""Chips on which the loops that libtpu 0.0.42.1 makes of gradients' reduce-scatters were seen to pay
(experiments/compiler_judge); on v5p and v6e those that were seen cost more than they hid."""
WINDOWED_BYTES: Final = 2**25
"""Gradients of at least this size on a device are summed in loops: 64 MiB are."""


def windowed(plan: PlanRecord) -> frozenset[int]:
    """Gradients that a matmul makes as partial sums, and whose reduce-scatter XLA's partitioner runs as a loop of
    permutes beside it. Not those within a loop of the program: of these, constraints were slower.
    """
    if plan.machine.profile.chip_name not in WINDOWS:
        return frozenset()
    order = matmul_order(plan.program)
    made = {v for op, _ in plan.program.walk() if is_matmul(op) for v in op.results}
    return frozenset(
        r.value
        for r in plan.cost.rows
        if r.kind == "reduce_scatter"
        and r.value in made
        and r.times == 1
        and r.bytes >= WINDOWED_BYTES
        and order.role(r) is Role.GRADIENTS
    )


def own_timeline(plan: PlanRecord, form: str = "explicit") -> Timeline:
    """The plan's step on the clock. form: ``explicit``, or ``constraints``."""
    walk = _Walk(plan, windows=windowed(plan) if form == "constraints" else frozenset())
    walk.rows(walk.at_start, 1.0)
    walk.block(plan.program.body, 1.0, None)
    walk.rows(walk.at_end, 1.0)
    walk.wait(list(walk.arrives), 1.0)
    return Timeline(walk.now, tuple(walk.events))


@dataclass
class _Walk:
    plan: PlanRecord
    windows: frozenset[int] = frozenset()
    now: float = 0.0
    busy: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # link -> from when to when, in order
    began: float = 0.0  # when the block at hand did
    made: dict[int, float] = field(default_factory=dict)  # value -> when it can be moved: see `block`
    arrives: dict[int, tuple[float, str, str]] = field(default_factory=dict)  # value -> when its collective is done
    runs: dict[int, tuple[float, float]] = field(default_factory=dict)  # value of `windows` -> its matmul, from and to
    again: dict[int, float] = field(default_factory=dict)  # op in a user's shard_map -> how often one runs it
    sent: dict[int, float] = field(default_factory=dict)  # value of `early` that is on its way -> when it is there
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan = self.plan
        self.times = multiplicities(plan.program, plan.trips)
        self.order = matmul_order(plan.program)
        self.at_start, self.at_end = ([r for r in plan.cost.rows if r.when is when] for when in (When.START, When.END))
        self.shared: dict[int, list[CommRow]] = {}
        self.around: dict[tuple[int, When, int], list[CommRow]] = {}
        for row in plan.cost.rows:
            if row.when is When.SHARED:
                self.shared.setdefault(row.value, []).append(row)
            elif row.when not in (When.START, When.END):
                region = row.region if row.when is When.BODY else -1
                self.around.setdefault((row.op, row.when, region), []).append(row)
        self.early = self._early()

    def _early(self) -> dict[int, list[CommRow]]:
        """Value -> the rows of it for all its uses, or for its only one, where all of them run beside other work: they
        begin as soon as it is made, and not when the program comes to that use."""
        uses: dict[int, set[int]] = {}
        for op, _ in self.plan.program.walk():
            for value in op.operands:
                uses.setdefault(value, set()).add(op.id)
        places: dict[int, dict[tuple[int, When, int], list[CommRow]]] = {}
        for row in self.plan.cost.rows:
            if row.when not in (When.START, When.AFTER, When.INSIDE):
                places.setdefault(row.value, {}).setdefault((row.op, row.when, row.region), []).append(row)
        early: dict[int, list[CommRow]] = {}
        for value, at in places.items():
            ((op, when, _), rows), *others = at.items()
            alone = not others and uses.get(value, set()) <= {op if when is When.BEFORE else PROGRAM}
            beside = all(row.is_collective and self._hides(row) for row in rows)
            if (when is When.SHARED or alone) and beside and value not in self.windows:
                early[value] = rows
        return early

    def _hides(self, row: CommRow) -> bool:
        return hidden_share(self.plan.machine, row.kind, self.order.role(row), row.behind) > 0

    def block(self, block: Block, times: float, owner: tuple[int, int] | None) -> None:
        """Ops in order. Arguments exist when the block begins, and what is made of weights alone can be made then, or
        when the collectives on these are done."""
        outer, self.began = self.began, self.now
        begun: set[int] = set()  # values whose collectives for all their uses were begun
        for op in block.ops:
            for value in dict.fromkeys(op.operands):
                if value not in begun:
                    begun.add(value)
                    self.rows(self.shared.get(value, ()), times)
            before = self.around.get((op.id, When.BEFORE, -1), ())
            there = self.rows(before, times)
            early = max([self.began, *(there.get(v, self.made.get(v, 0.0)) for v in op.operands)])
            self.wait([*op.operands, *(r.value for r in before)], times)
            self.op(op, times)
            early = self.now if op.regions else early
            self.made.update({v: self.now if v in self.order.before else early for v in op.results})
            self.rows(self.around.get((op.id, When.AFTER, -1), ()), times)
            for value in op.results:
                if value in self.early and value in self.order.before:
                    self.sent[value] = self.rows(self.early[value], times)[value]
        for value in dict.fromkeys(block.results):
            if value not in begun:  # all its uses are results
                self.rows(self.shared.get(value, ()), times)
        handed = () if owner is None else self.around.get((owner[0], When.BODY, owner[1]), ())
        self.rows(handed, times)
        if owner is not None:  # what a trip hands on must be there before the next one
            self.wait([*block.results, *(r.value for r in handed)], times)
        self.began = outer

    def op(self, op: Op, times: float) -> None:
        """The op's own time, and that of its body."""
        total, start = self.plan.cost.op_seconds.get(op.id, 0.0), self.now
        if total > 0:
            kind = MATMUL if is_matmul(op) else OTHER_WORK
            self.now += total / self.times[op.id]
            self.events.append(Event(CORE, f"{op.kind}:{op.id}", kind, start, self.now, times, op.source))
            self.runs.update({v: (start, self.now) for v in op.results if v in self.windows})
        if op.kind == "shard_map":
            self.inside(op, times, start)
            return
        for number, region in enumerate(op.regions):
            self.loop(op, region, number, body_trips(op, number, self.plan.trips), times)

    def inside(self, op: Op, times: float, start: float) -> None:
        """The collectives of a user's `shard_map`, whose work began at `start` and is done: what no matmul comes before
        can be moved from its beginning. Those of a loop are one row, drawn once.
        """
        outer, self.began = self.began, start
        rows = [row for inner in ops_in_body(op) for row in self.around.get((inner.id, When.INSIDE, -1), ())]
        self.again.update({row.op: row.times / self.times[op.id] for row in rows})
        self.made.update({row.value: self.now for row in rows if row.value in self.order.before})
        self.rows(rows, times)
        self.wait([row.value for row in rows], times)
        self.began = outer

    def loop(self, op: Op, region: Block, number: int, trips: int, times: float) -> None:
        """Two trips on the clock, as far as there are any; the others are like the second."""
        if trips > 0:
            self.block(region, times, (op.id, number))
        if trips <= 1:
            return
        begin, before = self.now, {link: len(times_of) for link, times_of in self.busy.items()}
        self.block(region, times * (trips - 1), (op.id, number))
        rest = (self.now - begin) * (trips - 2)
        if rest > 0:
            start, self.now = self.now, self.now + rest
            self.events.append(Event(LOOPS, f"{op.kind}:{op.id}: {trips - 2} more trips", "loop", start, self.now))
            for link, times_of in self.busy.items():
                if len(times_of) != before.get(link, 0):  # trips use it, so they do in the others
                    last = max(start, times_of[-1][1])
                    times_of.append((last, last + rest))

    def rows(self, rows: Iterable[CommRow], times: float) -> dict[int, float]:
        """Collectives and copies of a place; those of one value one after another. The values, and when each is done.

        What is done before all uses of a value, they begin after; what is done for one use, others do not wait for.
        """
        done: dict[int, float] = {}
        for row in rows:
            if row.value in self.sent:  # all that is here of it
                done[row.value] = self.sent[row.value]
                continue
            ready = done.get(row.value, max(self.began, self.made.get(row.value, 0.0)))
            done[row.value] = self.collective(row, ready, times) if row.is_collective else self.copy(row, times)
            if row.when in (When.START, When.SHARED, When.AFTER):
                self.made[row.value] = done[row.value]
        for value in done:
            self.sent.pop(value, None)
        return done

    def copy(self, row: CommRow, times: float) -> float:
        """The core waits for it. When it is done."""
        self.wait([row.value], times)
        start, self.now = self.now, self.now + row.seconds
        self.events.append(Event(COPIES, row.where, COPY, start, self.now, times, "", row.bytes))
        self.events.append(Event(CORE, row.where, waiting(COPY), start, self.now, times))
        return self.now

    def collective(self, row: CommRow, ready: float, times: float) -> float:
        """On its links as soon as it is ready, or now and waited for. When it is done."""
        mesh, machine = self.plan.schedule.mesh, self.plan.machine
        links = tuple(machine.link_seconds(row.kind, axis_parts(mesh, row.atoms))) or ("links",)
        group, moved = mesh.size(row.atoms), whole_bytes(row, mesh)
        looped = row.kind == "reduce_scatter" and row.value in self.runs
        asynchronous = looped or self._hides(row)
        if looped:  # the first part goes out when one of the group's parts of the matmul is done
            begin, end = self.runs[row.value]
            ready = begin + (end - begin) / group
        elif not asynchronous:
            self.wait([row.value], times)
            ready = self.now
        runs = self.again.get(row.op, 1.0)
        start = self.free_from(links, ready, row.seconds * runs)
        stop, often = start + row.seconds * runs, times * runs
        for link in links:
            if stop > start:
                insort(self.busy.setdefault(link, []), (start, stop))
            once = Event(link, row.where, row.kind, start, start + row.seconds, often, "", moved, asynchronous, group)
            self.events.append(once)
        self.arrives[row.value] = (stop, row.kind, row.where)
        if looped or not asynchronous:
            self.wait([row.value], times)
        return stop

    def free_from(self, links: Sequence[str], ready: float, seconds: float) -> float:
        """From when on links are free for so long, at the earliest when something is ready for them. What comes later
        in the program may have been put on them before."""
        start, since = ready, -inf
        while start != since:
            since = start
            for link in links:
                taken = self.busy.get(link, [])
                at = bisect_right(taken, (start, inf))
                if at and taken[at - 1][1] > start:
                    start = taken[at - 1][1]
                while at < len(taken) and taken[at][0] < start + seconds:
                    start, at = max(start, taken[at][1]), at + 1
        return start

    def wait(self, values: Sequence[int], times: float) -> None:
        """The core waits for what is on its way to these values."""
        for value in dict.fromkeys(values):
            stop, kind, name = self.arrives.pop(value, (0.0, "", ""))
            if stop > self.now:
                self.events.append(Event(CORE, name, waiting(kind), self.now, stop, times))
                self.now = stop
