"""The timeline of plans as trace events, for ui.perfetto.dev and chrome://tracing.

The format is Chrome's "Trace Event Format": complete events (``X``) that nest on a track, asynchronous ones (``b``,
``e``) for what is hidden behind other work, counters (``C``) for memory. Times are microseconds of the estimate.
"""

from collections.abc import Sequence
from typing import Any

from autoshard.costs.apart import fusion_on
from autoshard.plan_record import PlanRecord
from autoshard.report.view.memory import memory_view
from autoshard.report.view.outline import outline
from autoshard.report.view.timeline import Placed, events, on_the_clock

PROGRAM, COMPUTE, COPIES, FIRST_AXES = 1, 2, 3, 4
"""Numbers of the tracks of a plan; from the last one on come those of collectives, one for each set of axes."""


def perfetto_trace(plans: Sequence[PlanRecord], names: Sequence[str]) -> dict[str, Any]:
    """The trace of several plans: each plan is a process named with one of `names`."""
    trace_events: list[dict[str, Any]] = []
    for number, (plan, name) in enumerate(zip(plans, names, strict=True), start=1):
        trace_events += _process(plan, name, number)
    return {"displayTimeUnit": "ms", "traceEvents": trace_events}


def _process(plan: PlanRecord, name: str, pid: int) -> list[dict[str, Any]]:
    placed = on_the_clock(events(plan))
    rows, mesh = plan.cost.rows, plan.schedule.mesh

    def axes(event_row: int) -> str:
        return mesh.axes_text(rows[event_row].atoms).replace('"', "")

    over = sorted({axes(p.event.row) for p in placed if p.event.row >= 0 and rows[p.event.row].is_collective})
    tracks = {text: FIRST_AXES + k for k, text in enumerate(over)}
    out = [
        _named(pid, 0, "process_name", name),
        _named(pid, PROGRAM, "thread_name", "program"),
        _named(pid, COMPUTE, "thread_name", "compute"),
        _named(pid, COPIES, "thread_name", "local copies"),
        *(_named(pid, tid, "thread_name", f"collectives over {text}") for text, tid in tracks.items()),
    ]
    out += _outline(plan, placed, pid)
    for number, moment in enumerate(placed):
        event = moment.event
        if event.row < 0:
            op = plan.program.ops[event.op]
            track, title, kind = COMPUTE, f"{op.kind}:{op.id}", "compute"
            args: dict[str, Any] = {"source": op.source}
        else:
            row = rows[event.row]
            track = tracks[axes(event.row)] if row.is_collective else COPIES
            title, kind = f"{row.kind} {plan.program.values[row.value].name}", str(row.kind)
            args = {"where": row.where, "bytes": row.bytes, "executions": row.times, "hidden": event.hidden}
        common = {"name": title, "cat": kind, "pid": pid, "tid": track}
        out.append(
            {**common, "ph": "X", "ts": _us(moment.start_s), "dur": _us(moment.stop_s - moment.start_s), "args": args}
        )
        if moment.hidden_to_s > moment.hidden_from_s:
            hidden = {**common, "name": f"{title} (hidden)", "id": number}
            out.append({**hidden, "ph": "b", "ts": _us(moment.hidden_from_s)})
            out.append({**hidden, "ph": "e", "ts": _us(moment.hidden_to_s)})
    return out + _memory(plan, placed, pid)


def _named(pid: int, tid: int, what: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def _us(seconds: float) -> float:
    """Microseconds."""
    return round(seconds * 1e6, 6)


def _outline(plan: PlanRecord, placed: Sequence[Placed], pid: int) -> list[dict[str, Any]]:
    """Loops, layers and scopes as events that nest, each from the first to the last of its ops."""
    span: dict[int, tuple[float, float]] = {}
    for moment in placed:
        if moment.event.op >= 0:
            old = span.get(moment.event.op, (moment.start_s, moment.stop_s))
            span[moment.event.op] = (min(old[0], moment.start_s), max(old[1], moment.stop_s))
    rows, out = outline(plan.program), []
    for index, row in enumerate(rows):
        if not row.label:
            continue
        stop = index + 1
        while stop < len(rows) and rows[stop].depth > row.depth:
            stop += 1
        times = [span[r.op] for r in rows[index:stop] if r.op in span]
        if times:
            start, end = min(t[0] for t in times), max(t[1] for t in times)
            out.append(
                {"name": row.label, "cat": row.phase or "program", "ph": "X", "pid": pid, "tid": PROGRAM,
                 "ts": _us(start), "dur": _us(end - start)}
            )  # fmt: skip
    return out


def _memory(plan: PlanRecord, placed: Sequence[Placed], pid: int) -> list[dict[str, Any]]:
    """Counters: bytes that a device holds when an op runs, by what they are for."""
    view = memory_view(plan, fusion_on(plan.program, plan.machine.profile))
    groups = sorted(set(view.groups))
    change: list[dict[str, int]] = [{} for _ in range(view.points + 1)]
    for held, group in zip(view.held, view.groups, strict=True):
        change[held.start][group] = change[held.start].get(group, 0) + held.bytes
        change[held.stop][group] = change[held.stop].get(group, 0) - held.bytes
    now, series = dict.fromkeys(groups, 0), []
    for step in change:
        for group, size in step.items():
            now[group] += size
        series.append(dict(now))
    return [
        {"name": "memory of a device", "ph": "C", "pid": pid, "ts": _us(moment.start_s),
         "args": series[view.time[moment.event.op]]}
        for moment in placed
        if moment.event.row < 0 and moment.event.op in view.time
    ]  # fmt: skip
