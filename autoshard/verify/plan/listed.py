"""The collectives that a plan lists, beside those that its layouts need."""

from typing import Any

from autoshard.verify.plan.cost import Row, same
from autoshard.verify.plan.flow import COLLECTIVES, Flow
from autoshard.verify.plan.program import Findings


def check_collectives(plan: Any, flow: Flow, rows: list[Row], findings: Findings) -> None:
    """Check that the collectives which the plan lists are those that its layouts need."""
    graph = flow.graph
    derived: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.kind in COLLECTIVES:
            derived.setdefault((row.where, graph.values[row.value].name), []).append(row)
    listed: dict[tuple[str, str], list[Any]] = {}
    for item in plan["collectives"]:
        listed.setdefault((item["where"], item["value"]), []).append(item)
    for key in sorted(derived.keys() | listed.keys()):
        ours, theirs = derived.get(key, []), listed.get(key, [])
        where = f"{key[0]} ({key[1]})"
        our_steps = [f"{r.kind} over {flow.mesh.text(r.atoms, quote='')}" for r in ours]
        their_steps = [f"{t['kind']} over {t['axes']}" for t in theirs]
        if our_steps != their_steps:
            findings.add(
                "collectives",
                f"{where}: the plan lists {', '.join(their_steps) or 'none'}; "
                f"its layouts need {', '.join(our_steps) or 'none'}",
            )
            continue
        for row, item, step in zip(ours, theirs, our_steps, strict=True):
            for field in ("bytes", "seconds", "times"):
                if not same(item[field], getattr(row, field)):
                    findings.add(
                        "collectives",
                        f"{where}, {step}: the plan says {item[field]} {field}, it is {getattr(row, field)}",
                    )
            if not same(item["total_s"], row.seconds * row.times):
                findings.add(
                    "collectives",
                    f"{where}, {step}: the plan says {item['total_s']} s in all, it is {row.seconds * row.times}",
                )
            if item["source"] != row.source:
                findings.add(
                    "collectives", f"{where}: the plan gives the source {item['source']!r}, the op has {row.source!r}"
                )
