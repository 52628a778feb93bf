"""Simulations as a person reads them: each beside its plan, then all of them in order of their seconds."""

from collections.abc import Mapping, Sequence
from typing import Any

from autoshard.report.amounts import above_text, bytes_text, seconds_text

_WORK = (
    ("matmuls", "matmul_s"),
    ("other work", "other_work_s"),
    ("waiting for collectives", "exposed_s"),
    ("waiting for copies", "exposed_copies_s"),
)
"""What the core does in a step, which adds up to it."""


_LEFT_TO_XLA = {"constraints": "the collectives", "shardings": "all between inputs and outputs"}


def simulation_lines(simulations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines for `Simulation.to_dict()`s: each in detail, then all of them as a ranking, fastest first."""
    lines = detail_lines(simulations)
    if len(simulations) == 1:
        return lines[:-1]
    fastest = min(s["seconds"] for s in simulations)
    width = max(len(f"{s['plan']} as {s['form']}") for s in simulations)
    lines.append("fastest first:")
    for simulation in sorted(simulations, key=lambda s: s["seconds"]):
        name = f"{simulation['plan']} as {simulation['form']}"
        more = above_text(simulation["seconds"], fastest) if simulation["seconds"] != fastest else ""
        lines.append(f"  {name:<{width}}  {seconds_text(simulation['seconds']):>10}  {more}".rstrip())
    return lines


def detail_lines(simulations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each simulation with what its step is made of, and an empty line behind it."""
    return [line for simulation in simulations for line in (*_one(simulation), "")]


def _one(one: Mapping[str, Any]) -> list[str]:
    lines = [f"{one['plan']} as {one['form']}, by {one['scheduler']}"]
    step, serial, estimate = one["seconds"], one["plan_serial_s"], one["plan_estimate_s"]
    lines.append(
        f"  a step      {seconds_text(step)}; the plan says {seconds_text(serial)} where nothing overlaps "
        f"({_share(serial, step)}), estimate {seconds_text(estimate)} ({_share(estimate, step)})"
    )
    others = {name: s for name, s in one["clocks"].items() if s != step}
    if others:
        lines.append("  by clock    " + ", ".join(f"{name} {seconds_text(s)}" for name, s in others.items()))
    parts = [f"{label} {seconds_text(one[key])}" for label, key in _WORK]
    lines.append("  the core    " + ", ".join(parts))
    on_links, exposed = one["collectives_s"], one["exposed_s"]
    if on_links:
        lines.append(
            f"  the links   {seconds_text(on_links)} of collectives, {1 - min(1.0, exposed / on_links):.0%} of it "
            "hidden behind work"
        )
    for kind, seconds in sorted(one["exposed_by_kind_s"].items(), key=lambda p: -p[1]):
        lines.append(f"    waits     {seconds_text(seconds)} for {kind}")
    peak, planned = one.get("peak_bytes"), one.get("plan_peak_bytes")
    if peak and planned:
        lines.append(
            f"  memory      {bytes_text(peak)} per device at the peak; the plan says {bytes_text(planned)} "
            f"({_share(planned, peak)})"
        )
    lines += [f"  changed     {text}" for text in one["changes"]]
    lines += [f"  note: {text}" for text in one["notes"]]
    return lines


def form_text(form: Mapping[str, Any]) -> str:
    """``ChosenForm.to_dict()`` in a few words: which form, by whose timeline, how much quicker or why there is no other
    one, and what is left to XLA."""
    left = _LEFT_TO_XLA.get(form["form"], "")
    return _chosen(form) + (f"; XLA decides {left}" if left else "")


def _chosen(form: Mapping[str, Any]) -> str:
    if form["judge"] is None:
        return f"{form['form']}, as stated"
    seconds = form["seconds"]
    others = sorted((name for name in seconds if name != form["form"]), key=lambda n: (n != "explicit", seconds[n]))
    timed = f"{form['form']}, {seconds_text(seconds[form['form']])} on the timeline of {form['judge']}"
    if not others:
        return f"{timed}; no other one can be{_why_no_other(form['notes'])}"
    other = others[0]
    mine, its = seconds[form["form"]], seconds[other]
    if mine == its:
        return f"{timed}, as quick as {other}"
    if mine > its:
        return f"{timed}, {seconds_text(its)} as {other}, which is not worth it"
    return f"{timed}, {seconds_text(its - mine)} quicker than {other} ({1 - mine / its:.1%})"


def _why_no_other(notes: Sequence[str]) -> str:
    """Of the notes on a choice of form, why each of the others was left out, in a few words.

    >>> _why_no_other(["constraints: as constraints XLA does not know what is stated: a; form 'explicit' holds it"])
    ' (constraints leaves to XLA what is stated: a)'
    >>> _why_no_other(["constraints: it has one order of the devices; use 'explicit'"])
    ' (constraints: it has one order of the devices)'
    """
    told = []
    for note in notes:
        form, mark, why = note.partition(": ")
        _, known, statements = why.partition("does not know what is stated: ")
        if mark and form in _LEFT_TO_XLA:
            told.append(
                f"{form} leaves to XLA what is stated: {statements.rpartition('; ')[0] or statements}"
                if known
                else f"{form}: {why.partition('; ')[0]}"
            )
    return f" ({'; '.join(told)})" if told else ""


def _share(plan: float, step: float) -> str:
    return f"{plan / step - 1:+.0%}" if step > 0 else "-"
