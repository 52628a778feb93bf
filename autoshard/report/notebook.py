"""A plan in a notebook: the verdict, named strategies and the largest inputs, as a few lines of HTML without scripts."""

from typing import Any

from autoshard.plan_record import PlanRecord
from autoshard.report.amounts import bytes_text, seconds_text
from autoshard.report.rows import input_groups

MOST_GROUPS = 8
"""Groups of inputs that are shown, those that take most memory first."""

_TEMPLATE = """\
<div style="font: 13px/1.5 system-ui, sans-serif; max-width: 62rem">
<div style="font-weight: 600">{{ name }} <span style="font-weight: 400; opacity: .7">on {{ hardware }}, mesh {{ mesh }}</span></div>
<div style="display: flex; flex-wrap: wrap; gap: 1.6rem; margin: .4rem 0">
{% for title, value, note in figures %}
<div><div style="opacity: .7">{{ title }}</div><div style="font-size: 1.35em; font-weight: 600">{{ value }}</div>\
<div style="opacity: .7; font-size: .9em">{{ note }}</div></div>
{% endfor %}
</div>
{% for bar in bars %}
<div style="display: flex; gap: .6rem; align-items: center"><span style="width: 9rem; overflow: hidden">{{ bar.name }}</span>\
<span style="flex: 1"><span style="display: block; height: .7em; border-radius: 3px; width: {{ bar.share }}%; \
background: {{ '#2f6fde' if bar.own else '#8b96a5' }}"></span></span><span style="width: 7rem; text-align: right">{{ bar.said }}</span></div>
{% endfor %}
<table style="margin-top: .5rem; border-collapse: collapse"><thead><tr>{% for head in ("inputs", "arrays", "sharding", "per device") %}\
<th style="text-align: left; padding-right: 1.2rem">{{ head }}</th>{% endfor %}</tr></thead><tbody>
{% for group in groups %}
<tr><td style="text-align: left; padding-right: 1.2rem">{{ group.label }}</td><td style="padding-right: 1.2rem">{{ group.count }}</td>\
<td style="text-align: left; padding-right: 1.2rem"><code>{{ group.sharding }}</code></td><td>{{ group.local_bytes | bytes_text }}</td></tr>
{% endfor %}
</tbody></table>
{% if more %}<div style="opacity: .7">and {{ more }} more groups of inputs; plan.summary() and plan.report() tell all</div>{% endif %}
</div>
"""


def notebook_html(plan: PlanRecord) -> str:
    """What a notebook shows of a plan."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["bytes_text"] = bytes_text
    step, memory = plan.step_time, plan.memory
    fits = "fits the device" if memory.fits(plan.machine.usable_bytes) else "more than the device has with headroom"
    groups = sorted(input_groups(plan.to_dict()), key=lambda g: -g.local_bytes)
    return environment.from_string(_TEMPLATE).render(
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
