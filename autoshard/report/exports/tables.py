"""A plan's tables as CSV: collectives, parameters, memory at every point, and what is held from when to when."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autoshard.costs.apart import fusion_on
from autoshard.costs.border import stored_layout
from autoshard.costs.memory import sizes
from autoshard.plan_record import PlanRecord
from autoshard.report.view.memory import memory_view
from autoshard.report.view.timeline import events


def csv_tables(plan: PlanRecord) -> dict[str, str]:
    """File name -> the text of a CSV file with a header line; seconds and bytes are plain numbers."""
    memory, held = _memory(plan)
    return {
        "collectives.csv": _collectives(plan), "parameters.csv": _parameters(plan), "memory.csv": memory,
        "held.csv": held,
    }  # fmt: skip


def _text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_plain(column) for column in columns])
    writer.writerows([_plain(cell) for cell in row] for row in rows)
    return stream.getvalue()


def _plain(cell: Any) -> Any:
    """The cell, quoted where a spreadsheet would take it for a formula: plans may be by somebody else."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def _collectives(plan: PlanRecord) -> str:
    columns = ("where", "kind", "axes", "moves", "value", "bytes", "seconds", "times", "total_s", "hidden", "source")

    def rows() -> Iterable[Sequence[Any]]:
        for event in events(plan):
            row = plan.cost.rows[event.row] if event.row >= 0 else None
            if row is None or not row.is_collective:
                continue
            axes = plan.schedule.mesh.axes_text(row.atoms).replace('"', "")
            source = plan.program.ops[row.op].source if row.op in plan.program.ops else ""
            yield (
                row.where, str(row.kind), axes, event.role, plan.program.values[row.value].name, row.bytes, row.seconds,
                row.times, event.seconds, event.hidden, source,
            )  # fmt: skip

    return _text(columns, rows())


def _parameters(plan: PlanRecord) -> str:
    program, mesh = plan.program, plan.schedule.mesh
    size = sizes(program, mesh, plan.machine.profile.memory_tile)
    stated = {member for statement in plan.stated for kind, member in statement.members if kind == "value"}
    columns = ("path", "dtype", "shape", "sharding", "local_shape", "bytes", "local_bytes", "donated", "stated")

    def rows() -> Iterable[Sequence[Any]]:
        for index, value in enumerate(program.body.args[: len(program.input_names)]):
            type_, layout = program.type_of(value), plan.schedule.definitions[value]
            stored = stored_layout(program, mesh, value, layout)
            yield (
                program.input_names[index], type_.dtype, "x".join(map(str, type_.shape)), layout.text(mesh),
                "x".join(map(str, stored.local_shape(type_.shape, mesh))), int(type_.bytes), size(value, stored),
                int(index in program.donated), int(value in stated),
            )  # fmt: skip

    return _text(columns, rows())


def _memory(plan: PlanRecord) -> tuple[str, str]:
    """Two tables: bytes held at every point of the program, and what is held from when to when."""
    view = memory_view(plan, fusion_on(plan.program, plan.machine.profile))
    groups = list(dict.fromkeys(view.groups))
    series = np.zeros((len(groups), view.points + 1), np.int64)
    for held, group in zip(view.held, view.groups, strict=True):
        series[groups.index(group), held.start] += held.bytes
        series[groups.index(group), held.stop] -= held.bytes
    series = series.cumsum(axis=1)
    op_at = {point: plan.program.ops[op_id] for op_id, point in view.time.items()}

    def points() -> Iterable[Sequence[Any]]:
        for point in range(view.points):
            op = op_at.get(point)
            label, source = ("", "") if op is None else (f"{op.kind}:{op.id}", op.source)
            yield (point, label, source, int(series[:, point].sum()), *map(int, series[:, point]))

    held = (
        (h.what, group, h.start, h.stop, h.bytes) for h, group in zip(view.held, view.groups, strict=True)
    )  # fmt: skip
    return (
        _text(("point", "op", "source", "bytes", *groups), points()),
        _text(("what", "for", "from_point", "to_point", "bytes"), held),
    )
