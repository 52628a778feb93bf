"""What a simulation found, beside what the plan says."""

from dataclasses import dataclass, field
from typing import Any

from autoshard.simulation.clock import COLLECTIVES, COPY, MATMUL, OTHER_WORK, Timeline

Traffic = dict[str, tuple[float, float]]
"""Kind of collective -> (executions, bytes of V) of a step."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """One plan in one form on a clock.

    form: how the plan was handed to the compiler. scheduler: who ordered it. clocks: clock -> its timeline, where the
    scheduler has several; the first one is the answer. planned_s: the plan's own serial sum; estimate_s: its estimate.
    planned_peak_bytes: what one device holds at the plan's peak; peak_bytes: what the compiler says of its program.
    changes: what the compiler made of the planned collectives, in words. notes: what is not taken as meant.
    """

    plan: str
    form: str
    scheduler: str
    clocks: dict[str, Timeline]
    planned_s: float
    estimate_s: float
    planned: Traffic
    planned_peak_bytes: int
    peak_bytes: int | None = None
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    compile_s: float | None = field(default=None, compare=False)

    @property
    def timeline(self) -> Timeline:
        """The timeline that is the answer."""
        return next(iter(self.clocks.values()))

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.timeline.seconds

    def found(self) -> Traffic:
        """What the timeline's collectives amount to."""
        return traffic_of(self.timeline)

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data; without the events and without what differs from run to run."""
        line = self.timeline
        return {
            "plan": self.plan,
            "form": self.form,
            "scheduler": self.scheduler,
            "seconds": self.seconds,
            "clocks": {name: t.seconds for name, t in self.clocks.items()},
            "plan_serial_s": self.planned_s,
            "plan_estimate_s": self.estimate_s,
            "plan_peak_bytes": self.planned_peak_bytes,
            "peak_bytes": self.peak_bytes,
            "matmul_s": line.total(MATMUL),
            "other_work_s": line.total(OTHER_WORK),
            "copies_s": line.total(COPY),
            "collectives_s": sum(e.seconds * e.times for e in line.collectives()),
            "exposed_s": line.exposed_s,
            "exposed_copies_s": line.exposed_copies_s,
            "exposed_by_kind_s": {k: s for k, s in line.waits().items() if k in COLLECTIVES},
            "planned_collectives": {k: list(v) for k, v in sorted(self.planned.items())},
            "collectives": {k: list(v) for k, v in sorted(self.found().items())},
            "changes": list(self.changes),
            "notes": list(self.notes),
        }


def traffic_of(line: Timeline) -> Traffic:
    """Executions and bytes by kind."""
    out: Traffic = {}
    for e in line.collectives():
        times, bytes_ = out.get(e.kind, (0.0, 0.0))
        out[e.kind] = (times + e.times, bytes_ + e.times * e.bytes)
    return out


def changes_between(planned: Traffic, line: Timeline) -> tuple[str, ...]:
    """What the compiler changed: a sentence for each kind of collective that differs by more than a tenth in bytes."""
    traffic, out = traffic_of(line), []
    for kind in sorted({*planned, *traffic}):
        (n, before), (m, after) = planned.get(kind, (0.0, 0.0)), traffic.get(kind, (0.0, 0.0))
        if abs(after - before) > 0.1 * max(before, after) and max(before, after) > 1e5:
            out.append(f"{kind}: planned {n:g} of {before / 1e6:,.1f} MB, compiled {m:g} of {after / 1e6:,.1f} MB")
    return tuple(out)
