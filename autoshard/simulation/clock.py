"""Events on a clock: a step as one device lives it.

Tracks are the core, the queue of copies between HBM and the chip, and the links. Where the core waits for a link or a
copy, that is an event of its own.
"""

from dataclasses import dataclass
from typing import Final

CORE, COPIES, LOOPS = "core", "copies", "loops"
MATMUL, OTHER_WORK, COPY = "matmul", "other work", "copy"
COLLECTIVES: Final = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "shift")
_WAIT: Final = "wait: "


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens on a track from `start_s` to `stop_s`, so many times a step.

    track: `CORE`, `COPIES`, `LOOPS` or a link. kind: `MATMUL`, `OTHER_WORK`, `COPY`, one of `COLLECTIVES`, or what
    `waiting` makes of it where the core waits for it. bytes: moved, of a collective V. group: devices of a collective.
    """

    track: str
    name: str
    kind: str
    start_s: float
    stop_s: float
    times: float = 1.0
    op_name: str = ""
    bytes: float = 0.0
    asynchronous: bool = False
    group: int = 0

    @property
    def seconds(self) -> float:
        """From start to stop, once."""
        return self.stop_s - self.start_s


@dataclass(frozen=True)
class Timeline:
    """A step on the clock. unknown_loops: those whose number of trips nothing says, counted as one."""

    seconds: float
    events: tuple[Event, ...]
    unknown_loops: tuple[str, ...] = ()

    def total(self, *kinds: str) -> float:
        """Seconds of a step in events of these kinds, whether or not anything waits."""
        return sum(e.seconds * e.times for e in self.events if e.kind in kinds)

    def waits(self) -> dict[str, float]:
        """Kind of collective or copy -> seconds of a step in which the core waits for it."""
        out: dict[str, float] = {}
        for e in self.events:
            if e.track == CORE and e.kind.startswith(_WAIT):
                kind = e.kind.removeprefix(_WAIT)
                out[kind] = out.get(kind, 0.0) + e.seconds * e.times
        return dict(sorted(out.items()))

    def collectives(self) -> list[Event]:
        """Every collective once, whatever the number of its links."""
        seen: dict[tuple[str, str, float, float, float], Event] = {}
        for e in self.events:
            if e.kind in COLLECTIVES:
                seen.setdefault((e.name, e.kind, e.start_s, e.stop_s, e.times), e)
        return list(seen.values())

    @property
    def exposed_s(self) -> float:
        """Seconds of a step in which the core waits for collectives."""
        return sum(s for kind, s in self.waits().items() if kind in COLLECTIVES)

    @property
    def exposed_copies_s(self) -> float:
        """Seconds of a step in which the core waits for copies."""
        return self.waits().get(COPY, 0.0)


def waiting(kind: str) -> str:
    """The kind of an event in which the core waits for one of this kind."""
    return _WAIT + kind
