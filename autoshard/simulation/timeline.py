"""A compiled program on a clock: the core runs its schedule in order, beside it links and a queue of copies.

A collective that the compiler made asynchronous runs from its start on its links and is waited for at its done; another
one is waited for at once. Collectives that share a link take turns. Of a loop two trips are timed and the others are
like the second; of branches the longest counts.
"""

from dataclasses import dataclass, field
from typing import Final

from autoshard.costmodels.machine import Machine
from autoshard.simulation.clock import COPY, CORE, LOOPS, MATMUL, OTHER_WORK, Event, Timeline, waiting
from autoshard.simulation.copies import CopyQueue
from autoshard.simulation.links import Groups, Links
from autoshard.simulation.scheduled import FUSIONS, HBM, KINDS, Array, Computation, Instruction, Module
from autoshard.simulation.trips import trips_of
from autoshard.simulation.work import Clock, Work, Worker
from autoshard.verify.runs.hlo import device_groups

_NOTHING: Final = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
     "opt-barrier", "domain", "add-dependency", "iota", "fusion-done"}
)  # fmt: skip

_ALLOCATION: Final = 'custom_call_target="AllocateBuffer"'  # memory that nothing is written to yet


def timeline(module: Module, machine: Machine, clock: Clock = "expected") -> Timeline:
    """The module on the clock of a machine whose positions are the module's devices."""
    walk = _Walk(module, machine, clock)
    walk.run(module.computations[module.entry], 1.0)
    for running in sorted(walk.pending.values(), key=lambda r: r.done_s):  # nothing says where these are waited for
        walk.until(running.done_s, running.kind, running.name, 1.0)
    if walk.copies.waiting:
        walk.wait_copy(walk.copies.waiting[-1].name, 1.0)
    return Timeline(walk.now, tuple(walk.events), tuple(walk.unknown))


@dataclass
class _Pending:
    """A collective that runs beside the core: its kind, its name, and when it is done."""

    kind: str
    name: str
    done_s: float


@dataclass
class _Walk:
    module: Module
    machine: Machine
    clock: Clock
    now: float = 0.0
    free: dict[str, float] = field(default_factory=dict)  # track -> when it is free
    pending: dict[str, _Pending] = field(default_factory=dict)  # name or channel -> what runs
    events: list[Event] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.worker, self.links = Worker(self.module, self.machine), Links(self.machine)
        self.copies = CopyQueue(self.machine.profile.memory.bandwidth.value, events=self.events)
        self._of_fusion: dict[str, _Fused] = {}

    def run(self, computation: Computation, times: float) -> None:
        for i in computation.instructions.values():
            if i.opcode in _NOTHING:
                continue
            if i.opcode == "while":
                self.loop(i, computation, times)
            elif i.opcode == "conditional":
                self.branches(i, times)
            elif i.opcode == "call":
                for name in i.called:
                    self.run(self.module.computations[name], times)
            else:
                self.one(i, computation, times)

    def one(self, i: Instruction, within: Computation, times: float) -> None:
        stem = i.opcode.removesuffix("-start").removesuffix("-done")
        if stem in KINDS:
            if i.opcode.endswith("-done"):
                self.wait(i.operands[0], i, times)
            else:
                self.collective(i, within, i, i.name if i.opcode.endswith("-start") else None, times)
        elif i.opcode in ("copy-start", "slice-start", "dynamic-slice-start"):
            self.copy(i, times)
        elif i.opcode in ("copy-done", "slice-done", "dynamic-slice-done"):
            self.wait_copy(i.operands[0], times)
        elif i.opcode in ("async-start", "async-update", "async-done"):
            self.wrapped(i, times)
        elif i.opcode in FUSIONS:
            self.fusion(i, within, times)
        elif i.opcode in ("send", "recv", "send-done", "recv-done") or _ALLOCATION in i.rest:
            return
        else:
            self.work(i, self.worker.of(i, within), times)

    def work(self, i: Instruction, work: Work, times: float) -> None:
        """The core is busy."""
        seconds = work.seconds(self.clock)
        if seconds <= 0:
            return
        kind = MATMUL if work.is_matmul else OTHER_WORK
        self.copies.advance(self.now, seconds, work.bytes)
        start, self.now = self.now, self.now + seconds
        self.events.append(Event(CORE, i.name, kind, start, self.now, times, i.op_name, work.bytes))

    def fusion(self, i: Instruction, within: Computation, times: float) -> None:
        """Work, a collective that was fused with it, or a part of a collective that runs beside it."""
        fused = self.fused(i)
        work = self.worker.of(i, within)
        for collective, inside in fused.collectives:
            key = collective.channel or collective.name
            if fused.starts:
                self.collective(collective, inside, i, key, times)
            elif not fused.ends and key not in self.pending:
                self.collective(collective, inside, i, None, times, scatters=fused.scatters)
        if not fused.collectives or work.is_matmul or i.cycles is not None:
            self.work(i, work, times)
        for collective, _ in fused.collectives:
            if fused.ends:
                self.wait(collective.channel or collective.name, i, times)

    def fused(self, i: Instruction) -> "_Fused":
        key = i.called[0] if i.called else ""
        if key not in self._of_fusion:
            self._of_fusion[key] = _Fused.of(self.module, key)
        return self._of_fusion[key]

    def wrapped(self, i: Instruction, times: float) -> None:
        """``async-start`` and its done around a computation with a collective, or with work of another core."""
        if i.opcode == "async-done":
            self.wait(self.first_of(i), i, times)
            return
        if i.opcode == "async-update":
            return
        for name in i.called:
            inside = self.module.computations.get(name)
            for collective, where in _Fused.of(self.module, name).collectives if inside else ():
                self.collective(collective, where, i, i.name, times)

    def first_of(self, i: Instruction) -> str:
        """The start that an update or a done goes back to."""
        name = i.operands[0] if i.operands else ""
        return name if name in self.pending else next((k for k in self.pending if name.startswith(k)), name)

    def collective(
        self,
        one: Instruction,
        inside: Computation,
        shown: Instruction,
        key: str | None,
        times: float,
        scatters: bool = False,
    ) -> None:
        """Put a collective on its links. key: by which its done finds it; None where the core waits for it."""
        kind, bytes_, groups = traffic(one, inside, self.module, scatters=scatters)
        took = self.links.collective(kind, bytes_, groups)
        if took.seconds <= 0:
            return
        start = max([self.now, *(self.free.get(link, 0.0) for link in took.links)])
        stop = start + took.seconds
        name = shown.name
        for link in took.links or ("links",):
            self.free[link] = stop
            self.events.append(
                Event(link, name, kind, start, stop, times, one.op_name, bytes_, key is not None, len(groups[0]))
            )
        if key is None:
            self.until(stop, kind, name, times)
        else:
            self.pending[key] = _Pending(kind, name, stop)

    def copy(self, i: Instruction, times: float) -> None:
        """Between HBM and the chip, or within HBM, which it crosses twice; beside the core."""
        moved = min((a.bytes for a in i.arrays if a.elements > 1), default=0)
        crossings = max(1, sum(a.space == HBM for a in i.arrays[:2]))
        self.copies.start(i.name, moved * crossings, times, i.op_name)

    def wait_copy(self, name: str, times: float) -> None:
        done = self.copies.until(name, self.now)
        if done > self.now:
            self.events.append(Event(CORE, name, waiting(COPY), self.now, done, times))
            self.now = done

    def wait(self, key: str, i: Instruction, times: float) -> None:
        running = self.pending.pop(key, None)
        if running is not None:
            self.until(running.done_s, running.kind, running.name, times)

    def until(self, stop: float, kind: str, name: str, times: float) -> None:
        if stop > self.now:
            self.copies.advance(self.now, stop - self.now)
            self.events.append(Event(CORE, name, waiting(kind), self.now, stop, times))
            self.now = stop

    def loop(self, i: Instruction, within: Computation, times: float) -> None:
        trips = trips_of(i, within, self.module)
        if trips is None:
            self.unknown.append(i.name)
            trips = 1
        body = self.module.computations[(i.attribute("body") or "").lstrip("%")]
        if trips > 0:
            self.run(body, times)
        if trips <= 1:
            return
        begin, free, earlier = self.now, dict(self.free), set(self.pending)
        self.run(body, times * (trips - 1))
        rest = (self.now - begin) * (trips - 2)
        if rest > 0:
            start, self.now = self.now, self.now + rest
            self.events.append(Event(LOOPS, f"{i.name}: {trips - 2} more trips", "loop", start, self.now, times))
            used = {track: stop for track, stop in self.free.items() if stop != free.get(track)}  # by trips, not before
            self.free.update({track: stop + rest for track, stop in used.items()})
            for key, running in self.pending.items():
                running.done_s += rest if key not in earlier else 0.0

    def branches(self, i: Instruction, times: float) -> None:
        """The longest of the branches."""
        best: tuple[float, dict[str, float], CopyQueue, list[Event]] | None = None
        begin, free, copies, many = self.now, dict(self.free), self.copies, len(self.events)
        for name in i.called:
            self.now, self.free, self.copies = begin, dict(free), copies.copy()
            del self.events[many:]
            self.run(self.module.computations[name], times)
            if best is None or self.now > best[0]:
                best = (self.now, self.free, self.copies, self.events[many:])
        if best is not None:
            del self.events[many:]
            self.now, self.free, self.copies = best[0], best[1], best[2]
            self.events += best[3]


@dataclass(frozen=True)
class _Fused:
    """What of a collective a fused computation holds."""

    collectives: tuple[tuple[Instruction, Computation], ...]
    starts: bool
    ends: bool
    scatters: bool

    @classmethod
    def of(cls, module: Module, name: str) -> "_Fused":
        collectives: list[tuple[Instruction, Computation]] = []
        marks: set[str] = set()
        scatters = [False]

        def walk(name: str) -> None:
            computation = module.computations.get(name)
            if computation is None:
                return
            scatters[0] |= "all-reduce-scatter" in name
            for i in computation.instructions.values():
                if i.opcode.removesuffix("-start") in KINDS:
                    collectives.append((i, computation))
                elif i.opcode == "custom-call":
                    marks.add((i.attribute("custom_call_target") or "").strip('"'))
                elif i.opcode in ("fusion", "call"):
                    for called in i.called:
                        walk(called)

        walk(name)
        return cls(tuple(collectives), "AsyncCollectiveStart" in marks, "AsyncCollectiveDone" in marks, scatters[0])


def traffic(
    one: Instruction, inside: Computation, module: Module, *, scatters: bool = False
) -> tuple[str, float, Groups]:
    """(kind, V in bytes, groups) of a collective; V as `costmodels.collectives` counts it, without padding.

    scatters: an all-reduce of which each device keeps a part, as the compiler writes a reduce-scatter.
    """
    kind = KINDS[one.opcode.removesuffix("-start")]
    groups = device_groups(one.rest, module.devices)
    sent = float(sum(a.plain_bytes for o in one.operands for a in _arrays(inside, o)))
    if kind == "all_reduce" and (scatters or "all-reduce-scatter" in inside.name):
        kind = "reduce_scatter"
    if kind in ("all_gather", "all_to_all"):
        sent *= len(groups[0])
    return kind, sent, groups


def _arrays(within: Computation, name: str) -> tuple[Array, ...]:
    return within.instructions[name].arrays if name in within.instructions else ()
