"""Copies between memory and the chip that run beside the core, one after the other.

Both read the same memory: while the core moves bytes of its own, copies have what is left of the memory's rate, and
all of it while the core waits or computes. So no schedule takes less than its bytes at that rate.
"""

from dataclasses import dataclass, field, replace

from autoshard.simulation.clock import COPIES, COPY, Event


@dataclass(slots=True)
class _Copy:
    """bytes: that it moves; left: those that are not moved yet. start_s: when the first of them was."""

    name: str
    op_name: str
    times: float
    bytes: float
    left: float
    start_s: float | None = None


@dataclass
class CopyQueue:
    """The copies that were started and are not done, in their order. rate: of the memory, bytes a second."""

    rate: float
    waiting: list[_Copy] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def start(self, name: str, bytes_: float, times: float, op_name: str) -> None:
        """A copy of so many bytes, which runs after those before it."""
        self.waiting.append(_Copy(name, op_name, times, bytes_, bytes_))

    def copy(self) -> "CopyQueue":
        """The same queue, to go on by itself."""
        return CopyQueue(self.rate, [replace(one) for one in self.waiting], self.events)

    def advance(self, now: float, seconds: float, core_bytes: float = 0.0) -> None:
        """From `now` on so many seconds pass, in which the core moves so many bytes."""
        free = self.rate - core_bytes / seconds if seconds > 0 else 0.0
        stop = now + seconds
        while self.waiting and free > 0 and now < stop:
            first = self.waiting[0]
            first.start_s = now if first.start_s is None else first.start_s
            needed = first.left / free
            if now + needed > stop:
                first.left -= (stop - now) * free
                return
            now += needed
            self._done(now)

    def until(self, name: str, now: float) -> float:
        """When a copy is done for which the core waits from `now` on; `now` where it is done."""
        while any(one.name == name for one in self.waiting):
            first = self.waiting[0]
            first.start_s = now if first.start_s is None else first.start_s
            now += first.left / self.rate
            self._done(now)
        return now

    def _done(self, now: float) -> None:
        done = self.waiting.pop(0)
        start = now if done.start_s is None else done.start_s
        self.events.append(Event(COPIES, done.name, COPY, start, now, done.times, done.op_name, done.bytes))
