"""A plan in a notebook: the verdict, named strategies and the largest inputs, as HTML without scripts."""

from typing import Any

from autoshard.plan_record import PlanRecord
from autoshard.report.amounts import bytes_text, seconds_text
from autoshard.report.page.html import rendered
from autoshard.report.rows import input_groups

MOST_GROUPS = 8
"""How many groups of inputs are shown; those that take most memory come first."""


def notebook_html(plan: PlanRecord) -> str:
    """The HTML that a notebook shows for a plan."""
    step, memory = plan.step_time, plan.memory
    fits = "fits the device" if memory.fits(plan.machine.usable_bytes) else "more than the device has with headroom"
    groups = sorted(input_groups(plan.to_dict()), key=lambda g: -g.local_bytes)
    return rendered(
        "notebook.html.j2",
        name=plan.program.name,
        hardware=plan.machine.profile.name,
        mesh=" x ".join(f"{a}={n}" for a, n in plan.machine.axes),
        figures=[
            ("step", seconds_text(step.estimate_s), f"at most {seconds_text(step.upper_s)}"),
            ("MFU", f"{step.mfu['estimate']:.1%}", f"bound by {step.bound}"),
            ("memory", bytes_text(memory.peak_bytes), fits),
            ("gap", f"{plan.gap:.2%}", f"no plan under {seconds_text(plan.bound_s)}"),
        ],
        bars=_bars(plan),
        groups=groups[:MOST_GROUPS],
        more=max(0, len(groups) - MOST_GROUPS),
    )


def _bars(plan: PlanRecord) -> list[dict[str, Any]]:
    known = [(b.name, float(b.objective_s), False) for b in plan.baselines if b.objective_s is not None]
    rows = sorted([("this plan", plan.objective_s, True), *known], key=lambda row: row[1])
    widest = max(cost for _, cost, _ in rows) or 1.0
    return [
        {"name": name, "share": round(100 * cost / widest, 1), "said": seconds_text(cost), "own": own}
        for name, cost, own in rows
    ]
