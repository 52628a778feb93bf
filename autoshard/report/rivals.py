"""Plans that were simulated beside each other, as a person reads them: the ranking, who is left out, and the choice."""

from collections.abc import Mapping
from typing import Any

from autoshard.plan_record import OWN_SCHEDULER
from autoshard.report.amounts import above_text, seconds_text

Json = Mapping[str, Any]
_MOST_NAMED = 12
"""Rivals beyond the share that are named; they are told cheapest first."""


def rival_lines(rivals: Json, runs_as: str, file: str = "") -> list[str]:
    """Lines for `JudgedRivals.to_dict()`: the ranking, what was left out, and last who is quickest and how to have it.

    runs_as: the form of the chosen plan. file: where that was written; empty where it was not.
    """
    compared = rivals["compared"]
    given = compared[0]
    rows = [(seconds, one, form) for one in compared for form, seconds in one["seconds"].items()]
    rows.sort(key=lambda row: row[0])
    width = max(len(f"{one['name']} as {form}") for _, one, form in rows)
    lines = ["fastest first, beside the modelled seconds:"]
    for seconds, one, form in rows:
        slower = above_text(seconds, rows[0][0]) if seconds != rows[0][0] else ""
        beside = above_text(one["objective_s"], given["objective_s"]) if one is not given else ""
        name = f"{one['name']} as {form}"
        text = f"  {name:<{width}}  {seconds_text(seconds):>10}  {slower:<7}"
        text = f"{text}  modelled {seconds_text(one['objective_s']):>10}  {beside:<7}"
        if one.get("calibrated_s") is not None:
            text += f"  calibrated {seconds_text(one['calibrated_s']):>10}"
        lines.append(text.rstrip())
    for one in compared:
        lines += [f"  {one['name']} is also the plan of {', '.join(one['also'])}"] if one["also"] else []
        lines += [f"  {one['name']} as {form} was not judged: {why}" for form, why in one["refused"].items()]
    lines += [*_left_out(rivals), *(f"note: {text}" for text in rivals["notes"])]
    if rivals["judge"] == OWN_SCHEDULER:
        lines.append(
            "the judge is autoshard's own scheduler, which takes the plan's own prices: it is no independent judge. "
            "libtpu is one, for tpu_v5e, tpu_v5p and tpu_v6e, and JAX's CUDA plugin for NVIDIA GPUs"
        )
    return [*lines, _last(rivals, runs_as, file)]


def _left_out(rivals: Json) -> list[str]:
    limit = rivals["compared"][0]["objective_s"] * (1 + rivals["within"])
    beyond = [one for one in rivals["left_out"] if one["objective_s"] is not None and one["objective_s"] > limit]
    lines = []
    if beyond:
        beyond.sort(key=lambda one: one["objective_s"])
        given = rivals["compared"][0]["objective_s"]
        told = [f"{one['name']} {above_text(one['objective_s'], given, 0)}".strip() for one in beyond[:_MOST_NAMED]]
        told += [f"{len(beyond) - _MOST_NAMED} more"] if len(beyond) > _MOST_NAMED else []
        lines.append(f"modelled more than {_percent(rivals)} above: {', '.join(told)}")
    return lines + [f"left out {one['name']}: {one['reason']}" for one in rivals["left_out"] if one not in beyond]


def _last(rivals: Json, runs_as: str, file: str) -> str:
    """Which plan is quickest, by how much, and how to have it."""
    given = rivals["compared"][0]
    chosen = next(one for one in rivals["compared"] if one["name"] == rivals["chosen"])
    mine = chosen["seconds"][runs_as]
    before = _seconds(given)
    by = f"by {rivals['judge']}"
    if chosen is given:
        text = f"quickest: the given plan as {runs_as}, {seconds_text(mine)}, {by}"
        if len(rivals["compared"]) == 1:
            text += f"; no rival is modelled within {_percent(rivals)} of it"
        else:
            text += f"; of {_count(rivals)} modelled within {_percent(rivals)} none is quicker by half a percent"
    else:
        model = chosen["objective_s"] / given["objective_s"] - 1
        how = f"{by}, which refuses the given plan"
        if before is not None:
            how = f"{1 - mine / before:.1%} quicker than the given plan ({seconds_text(before)}), {by}"
        text = (
            f"quickest: {chosen['name']} as {runs_as}, {seconds_text(mine)}, {how}; its modelled seconds are "
            f"{model:+.1%} beside the given plan's"
        )
    if file:
        return f"{text}; written to {file}"
    return text if chosen is given else f"{text}; --output FILE writes it as a plan"


def chosen_text(rivals: Json) -> str:
    """A few words on a plan that was chosen so, for its verdict."""
    given = rivals["compared"][0]
    chosen = next(one for one in rivals["compared"] if one["name"] == rivals["chosen"])
    if chosen is given:
        return f"kept, by {rivals['judge']}, beside {_count(rivals)} modelled within {_percent(rivals)}"
    mine, before = _seconds(chosen), _seconds(given)
    model = f"modelled {chosen['objective_s'] / given['objective_s'] - 1:+.1%} beside"
    if mine is None or before is None:
        return f"{chosen['name']}, as {rivals['judge']} refuses the plan of the least modelled seconds; {model} that"
    return (
        f"{chosen['name']}, {1 - mine / before:.1%} quicker by {rivals['judge']} than the plan of the least modelled "
        f"seconds; {model} that"
    )


def _seconds(one: Json) -> float | None:
    """Of a step in the quickest form; None where it was judged in none."""
    return min(one["seconds"].values(), default=None)


def _count(rivals: Json) -> str:
    count = len(rivals["compared"]) - 1
    return f"{count} rival{'' if count == 1 else 's'}"


def _percent(rivals: Json) -> str:
    return f"{100 * rivals['within']:.3g}%"
