"""What a plan that simulation chose says of the plans that it was chosen among: do the figures make it the choice?

Simulated seconds are the judge's, and the other plans are not in the file: these are taken on trust. That the chosen
one is this plan, is near enough, and is the quickest by what is told, is not.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from autoshard.verify.plan.cost import RELATIVE, same
from autoshard.verify.plan.program import Findings
from autoshard.verify.plan.statements import limit_of

FORMS: Final = ("explicit", "constraints", "shardings")
"""Forms in which plans run; of equal ones the first is chosen."""
WORTH: Final = 0.005
"""The share of a step that another plan, or another form, must save to be chosen (docs/simulation.md)."""
TOLD: Final = "chosen by simulation among"
"""What the notes say of a plan that is not the one of the least modelled seconds."""


def check_rivals(plan: Mapping[str, Any], findings: Findings) -> None:
    """Check that the plan is the one that was chosen, and that the choice follows from what is told."""
    told = plan.get("rivals")
    if told is None:
        return
    compared = {one["name"]: one for one in told["compared"]}
    names = [name for one in told["compared"] for name in (one["name"], *one["also"])]
    names += [one["name"] for one in told["left_out"]]
    if len(set(names)) < len(names) or not all(names):
        findings.add("rivals", f"plans that were compared have the same name, or none: {', '.join(names)}")
    if not _is_seconds(told["within"]) or not 0 < told["within"] <= 1:
        findings.add("rivals", f"rivals are said to be within {told['within']!r} of the plan; it is a share up to 1")
        return
    if not told["judge"] or not told["clock"]:
        findings.add("rivals", "nothing says who ordered the steps, or how their work was timed")
    if told["chosen"] not in compared:
        findings.add("rivals", f"{told['chosen']!r} was chosen, which is not among those that were compared")
        return
    for one in told["left_out"]:
        if not one["reason"] or not (one["objective_s"] is None or _is_seconds(one["objective_s"])):
            findings.add("rivals", f"{one['name']} is left out, and why, or what it costs, is not told")
    if _check_compared(plan, told, findings):
        _check_chosen(plan, told, compared[told["chosen"]], findings)


def _check_compared(plan: Mapping[str, Any], told: Mapping[str, Any], findings: Findings) -> bool:
    """Whether all that was compared has figures that can be; those that refute bound, limit or nearness are told."""
    limit, given = limit_of(plan), told["compared"][0]
    least = plan["bound_s"] - 2 * plan["cost"]["rounding_s"]
    readable = True
    costs = [one["objective_s"] for one in told["compared"][1:]]
    if costs != sorted(costs):
        findings.add("rivals", f"rivals come by their modelled seconds, behind the plan at hand; they cost {costs}")
    by_figures = [one["calibrated_s"] for one in told["compared"] if one.get("calibrated_s") is not None]
    if by_figures and (len(by_figures) < len(told["compared"]) or not all(map(_is_seconds, by_figures))):
        findings.add(
            "rivals", f"seconds by calibrated figures are those of all plans or of none; told are {by_figures}"
        )
        return False
    near = min(by_figures, default=0.0) * (1 + told["within"])
    for one in told["compared"]:
        name, cost = one["name"], one["objective_s"]
        if not _is_seconds(cost) or not all(map(_is_seconds, one["seconds"].values())):
            findings.add("rivals", f"{name} is said to take {cost} s, simulated {one['seconds']}")
            readable = False
            continue
        forms, asked = ([*of["seconds"], *of["refused"]] for of in (one, given))
        if set(forms) - set(FORMS) or len(set(forms)) < len(forms) or set(forms) != set(asked):
            findings.add(
                "rivals",
                f"{name} was to be simulated as {', '.join(forms)}, and {given['name']} as {', '.join(asked)}; forms "
                f"are {', '.join(FORMS)}",
            )
        if cost < least - RELATIVE * least:
            findings.add("rivals", f"{name} costs {cost} s, less than bound_s {plan['bound_s']}: it refutes the bound")
        far = cost > given["objective_s"] * (1 + told["within"]) * (1 + RELATIVE)
        by_calibration = cost if one.get("calibrated_s") is None else one["calibrated_s"]
        if one is not given and far and by_calibration > near * (1 + RELATIVE):
            findings.add("rivals", f"{name} costs {cost} s, more than {told['within']:.1%} above {given['name']}")
        if limit is not None and not 0 <= one["peak_bytes"] <= limit:
            findings.add("rivals", f"{name} is said to hold {one['peak_bytes']} bytes; the limit is {limit}")
    return readable


def _check_chosen(
    plan: Mapping[str, Any], told: Mapping[str, Any], chosen: Mapping[str, Any], findings: Findings
) -> None:
    """The chosen one is this plan, and by its figures the one to choose."""
    given, form = told["compared"][0], plan.get("form") or {"form": "explicit"}
    if not same(chosen["objective_s"], plan["objective_s"]) or chosen["peak_bytes"] != plan["memory"]["peak_bytes"]:
        findings.add(
            "rivals",
            f"{chosen['name']} was chosen, which costs {chosen['objective_s']} s and holds {chosen['peak_bytes']} "
            f"bytes; the plan costs {plan['objective_s']} s and holds {plan['memory']['peak_bytes']} bytes",
        )
    note = f"{chosen['name']}, {TOLD} {len(told['compared'])} plans"
    if chosen is not given and not any(said.startswith(note) for said in plan["notes"]):
        findings.add("rivals", "the plan is not that of the least modelled seconds, and its notes do not say so")
    runs = chosen["seconds"]
    if form["form"] != _form_to_choose(runs):
        findings.add("rivals", f"the plan runs as {form['form']}, and {chosen['name']} was simulated to take {runs}")
        return
    if form.get("seconds") and (form["seconds"] != runs or form["judge"] != told["judge"]):
        findings.add(
            "rivals",
            f"as {form['seconds']} s by {form['judge']} the form was chosen, the plan as {runs} by {told['judge']}",
        )
    seconds = {one["name"]: _to_choose(one["seconds"]) for one in told["compared"]}
    mine, first = seconds[chosen["name"]], seconds[given["name"]]
    best = min(s for s in seconds.values() if s is not None)
    worth = first is None or best <= (1 - WORTH) * first  # the judge may refuse the plan at hand
    right = mine == best if worth else chosen is given
    if mine is None or not right:
        findings.add("rivals", f"{chosen['name']} was chosen, which does not follow from the simulated {seconds}")


def _form_to_choose(seconds: Mapping[str, float]) -> str | None:
    """The form in which a plan with these simulated seconds runs: written out unless another one is worth it."""
    if not seconds:
        return None
    best = min(seconds, key=lambda form: (seconds[form], FORMS.index(form)))
    written = seconds.get(FORMS[0])
    return FORMS[0] if written is not None and seconds[best] > (1 - WORTH) * written else best


def _to_choose(seconds: Mapping[str, float]) -> float | None:
    """Seconds of a plan in the form in which it would run; None where it was simulated in none."""
    form = _form_to_choose(seconds)
    return None if form is None else seconds[form]


def _is_seconds(amount: Any) -> bool:
    return not isinstance(amount, bool) and isinstance(amount, int | float) and isfinite(amount) and amount >= 0
