"""Timelines as trace events for ui.perfetto.dev: a process for each simulation, a thread for each track."""

from collections.abc import Sequence
from typing import Any

from autoshard.simulation.clock import COPIES, CORE, LOOPS
from autoshard.simulation.result import Simulation

_FIRST = (CORE, LOOPS, COPIES)


def trace_events(simulations: Sequence[Simulation]) -> dict[str, Any]:
    """Chrome's "Trace Event Format"; times are microseconds. Of a loop two trips are drawn."""
    out: list[dict[str, Any]] = []
    for pid, simulation in enumerate(simulations, start=1):
        out.append(_named(pid, 0, "process_name", f"{simulation.plan} ({simulation.form}; {simulation.scheduler})"))
        tracks = {e.track for e in simulation.timeline.events}
        order = [t for t in _FIRST if t in tracks] + sorted(tracks - set(_FIRST))
        for tid, track in enumerate(order, start=1):
            out.append(_named(pid, tid, "thread_name", track))
        threads = {track: tid for tid, track in enumerate(order, start=1)}
        for e in simulation.timeline.events:
            told = {"times": e.times, "bytes": e.bytes, "asynchronous": e.asynchronous, "from": e.op_name}
            out.append(
                {"name": e.name if not e.kind.startswith("wait") else f"{e.kind} ({e.name})", "cat": e.kind,
                 "ph": "X", "pid": pid, "tid": threads[e.track], "ts": _us(e.start_s), "dur": _us(e.seconds),
                 "args": {k: v for k, v in told.items() if v}}
            )  # fmt: skip
    return {"displayTimeUnit": "ms", "traceEvents": out}


def _named(pid: int, tid: int, what: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 6)
