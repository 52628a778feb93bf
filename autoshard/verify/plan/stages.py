"""Do the stages of a plan add up: costs that rise, bounds below them, and placements that later stages kept?"""

import re
from collections.abc import Sequence
from typing import Any

from autoshard.verify.plan.bound import COARSER, check_claim
from autoshard.verify.plan.cost import RELATIVE, same
from autoshard.verify.plan.flow import Flow
from autoshard.verify.plan.layout import Holding
from autoshard.verify.plan.program import PROGRAM_OP, Findings
from autoshard.verify.plan.stage_notes import check_stage_notes
from autoshard.verify.plan.statements import limit_of

_ALL_IN_FORCE = "from the first stage on"
"""Words in the note of plans of which every stage had all statements."""
_ENDED = ("stopped", "search was ended there", "no plan was found for one of the stages")
"""Words in notes of plans that are the best that a run had when it ended before all was decided."""
_NEAR = 1.01
"""Searches end at an accepted gap, so a plan under fewer demands may cost this many times that of one under more."""


def check_stages(plan: Any, flow: Flow, findings: Findings) -> int:
    """Check every stage against its neighbours and against the schedule; returns how many stages there are."""
    stages = plan.get("stages") or []
    rounding = 2 * float(plan["cost"]["rounding_s"])
    before: float | None = None
    for number, stage in enumerate(stages):
        what = f"stage {number}"
        check_claim(f"{what}: ", stage, plan, findings, "stages", COARSER if stage is not stages[-1] else 1.0)
        cost, bound = float(stage["cost_s"]), float(stage["bound_s"])
        slack = rounding + 1e-6 * abs(cost) + float(stage["gap"]) * cost
        if before is not None and bound > 0 and cost < before * (1 - 1e-9) - slack - _gap_of(stages[number - 1]):
            findings.add("stages", f"{what} costs {cost} s, less than the stage before it, which had fewer demands")
        limit = limit_of(plan)
        if limit is not None and stage["peak_bytes"] > limit:
            findings.add("stages", f"{what} holds {stage['peak_bytes']} bytes, the limit is {limit}")
        _check_price(what, stage, before, plan, findings)
        _kept(what, stage["placed"], plan, flow, findings)
        given_up = [(e["what"], e["keys"], e["on"], e["axes"], e["source"]) for e in stage.get("relaxed") or ()]
        if any(given_up.count(entry_key) > 1 for entry_key in given_up):
            findings.add("stages", f"{what} tells twice that it gave up the same")
        for entry in stage.get("relaxed") or ():
            _relaxed(what, entry, limit, plan, flow, findings)
        _check_prices(what, stage, findings)
        before = cost
    if stages:
        _check_last(stages[-1], plan, findings)
    check_stage_notes(plan, findings)
    _check_count(stages, plan, findings)
    return len(stages)


def ended_early(plan: Any) -> bool:
    """Whether the notes say that the plan is the best that a run had when it was ended."""
    return any(word in note for note in plan["notes"] for word in _ENDED)


def _check_count(stages: Sequence[Any], plan: Any, findings: Findings) -> None:
    """Check that there is one stage for each priority of the plan's statements, or for each named strategy."""
    if not stages and ended_early(plan):
        return
    names = [_name_of(name) for name in (plan.get("priorities") or {}).get("names", ())]
    if names:
        told = [stage["name"] for stage in stages]
        if told != names:
            findings.add("stages", f"priorities are {', '.join(names)}; the stages are {', '.join(told) or 'none'}")
        return
    by = plan.get("strategy") or (plan.get("options") or {}).get("strategy") or ""
    if by.partition(":")[0].strip() not in ("", "staged"):
        return
    levels = priorities_of(plan)
    told = [stage["priority"] for stage in stages]
    if told != (levels if by or any(levels) else []):
        findings.add(
            "stages",
            f"the statements have priorities {', '.join(map(str, levels)) or 'none'}; the plan has "
            + (f"stages of priority {', '.join(map(str, told))}" if told else "no stages"),
        )


def _name_of(strategy: Any) -> str:
    return strategy if isinstance(strategy, str) else str(strategy["name"])


def priorities_of(plan: Any) -> list[int]:
    """The priorities of dimensions in the plan's pins, without those of pins that a question found to hold anyway."""
    changed = plan.get("changed") or ()
    kept = list(changed[-1]["kept"]) if changed else []
    levels: set[int] = set()
    for pin in plan["statements"]:
        if pin["kind"] == "pin" and pin not in kept:
            marks = re.findall(r"\{[^{}]*\}(?:p(\d+))?", pin["sharding"].partition("]")[0])
            levels |= {int(mark) if mark else int(pin.get("priority", 0)) for mark in marks}
            if not marks or "=" in pin["sharding"].partition("]")[2]:  # replicated or unreduced axes
                levels.add(int(pin.get("priority", 0)))
    return sorted(levels)


def _check_price(what: str, stage: Any, before: float | None, plan: Any, findings: Findings) -> None:
    """Check the price of a stage: what it costs more than the stage before it.

    The first stage is compared with the optimum without pins, which is not in the file; or, of named strategies and
    where all statements are in force from the start, with the optimum all at once.
    """
    cost, price = float(stage["cost_s"]), float(stage["price_s"])
    alone, joint = len(plan["stages"]) == 1, plan.get("joint")
    at_once = bool(stage["name"]) or any(_ALL_IN_FORCE in note for note in plan["notes"])
    if before is None and alone and joint is None:
        before = cost  # one stage is the optimum all at once
    elif before is None and at_once and joint is not None:
        before = min(float(joint["cost_s"]), cost)
    if before is not None and not abs(price - (cost - before)) <= RELATIVE * max(cost, before):
        findings.add(
            "stages", f"{what} has a price of {price} s; it costs {cost} s, {before} s before: {cost - before}"
        )
    if before is None and joint is not None and price < cost - _NEAR * float(joint["cost_s"]) - RELATIVE * cost:
        # the optimum without pins is no dearer than the one with all of them
        least = cost - float(joint["cost_s"])
        findings.add("stages", f"{what} has a price of {price} s; it costs {least} s more than all at once")
    if before is None and not -RELATIVE * cost <= price <= cost * (1 + RELATIVE):
        findings.add("stages", f"{what} has a price of {price} s and costs {cost} s in all")


def _check_last(last: Any, plan: Any, findings: Findings) -> None:
    """Check that the last stage has the figures of the plan."""
    if not same(last["cost_s"], plan["objective_s"]):
        findings.add("stages", f"the plan costs {plan['objective_s']} s, its last stage {last['cost_s']} s")
    if not same(last["bound_s"], plan["bound_s"]):
        findings.add("stages", f"the plan's bound is {plan['bound_s']} s, the last stage's {last['bound_s']} s")
    if last["status"] != plan["status"]:
        findings.add("stages", f"the plan is {plan['status']!r}, its last stage {last['status']!r}")
    if last["peak_bytes"] != plan["memory"]["peak_bytes"]:
        findings.add(
            "stages",
            f"the plan holds {plan['memory']['peak_bytes']} bytes at the peak, its last stage {last['peak_bytes']}",
        )


def _gap_of(stage: Any) -> float:
    return float(stage["gap"]) * float(stage["cost_s"])


def _have(kind: str, key: str, plan: Any, flow: Flow) -> tuple[str, Sequence[Sequence[int]] | None]:
    """The name of a place that a stage speaks of, and the atoms that the plan has there by dimension or factor."""
    graph = flow.graph

    def dims(held: Holding | None) -> list[tuple[int, ...]] | None:
        return None if held is None else [run.atoms for run in held.runs]

    if kind in ("inputs", "boundaries"):
        return graph.values[int(key)].name, dims(flow.defined.get(int(key)))
    if kind == "shared":
        return graph.values[int(key)].name, dims(flow.form(int(key)))
    if kind == "outputs":
        way = flow.uses.get((PROGRAM_OP, int(key), -1))
        return f"output {graph.output_names[int(key)]}", None if way is None else dims(way.end)
    node = graph.nodes.get(int(key))
    name = f"op {key}" if node is None else node.label
    return name, plan["schedule"]["placements"].get(key, {}).get("factors")


def _kept(what: str, placed: Any, plan: Any, flow: Flow, findings: Findings) -> None:
    """Check that the axes that a stage placed are still there, in its order."""
    names = plan["mesh"]["atoms"]
    for kind in ("inputs", "boundaries", "shared", "outputs", "ops"):
        for key, lists in placed[kind].items():
            where, have = _have(kind, key, plan, flow)
            if have is None or len(have) != len(lists):
                findings.add("stages", f"{what} placed axes on {where}, which the plan does not have so")
                continue
            for index, (wanted, atoms) in enumerate(zip(lists, have, strict=True)):
                now = [names[a] for a in atoms]
                if not _within(wanted, now):
                    findings.add(
                        "stages",
                        f"{what} placed {', '.join(wanted)} on {where} ({index}); the plan has {{{', '.join(now)}}}",
                    )


def _relaxed(what: str, entry: Any, limit: int | None, plan: Any, flow: Flow, findings: Findings) -> None:
    """Check that the axes which a stage says it gave up are not there."""
    if entry["why"] not in ("statements", "placements", "memory") or (entry["why"] == "memory" and limit is None):
        findings.add("stages", f"{what} gave up {entry['name']} for {entry['why']!r}, of which the plan says nothing")
    names = plan["mesh"]["atoms"]
    places = [_have(entry["what"], key, plan, flow) for key in entry["keys"]]
    index = int(entry["on"])
    _check_entry(what, entry, [name for name, _ in places], names, findings)
    if not places or any(have is None or not 0 <= index < len(have) for _, have in places):
        findings.add("stages", f"{what} gave up {entry['name']} ({index}), a place that the plan does not have")
    elif all(have is not None and _within(entry["axes"], [names[a] for a in have[index]]) for _, have in places):
        where = ", ".join(name for name, _ in places[:4])
        findings.add("stages", f"{what} says that {', '.join(entry['axes'])} on {where} could not be kept; it is there")


def _check_entry(what: str, entry: Any, places: Sequence[str], names: Sequence[str], findings: Findings) -> None:
    """Check the rest of an entry about what was given up: the name of its first place, its axes, where it came from."""
    place = places[0].removeprefix("output ") if entry["what"] == "outputs" and places else "".join(places[:1])
    if entry["name"] != place or len(set(entry["keys"])) < len(entry["keys"]):
        findings.add("stages", f"{what} gave up something on {entry['name']}; it is {', '.join(places[:4])}, each once")
    axes = entry["axes"]
    if not axes or len(set(axes)) < len(axes) or not set(axes) <= set(names):
        findings.add("stages", f"{what} gave up {', '.join(axes)} on {entry['name']}, which are no axes of the mesh")
    if entry["source"] not in ("propagated", "chosen") or not isinstance(entry["proved"], bool):
        findings.add(
            "stages",
            f"{what} gave up {entry['name']}, {entry['source']!r}, proved is {entry['proved']!r}: neither is known",
        )


def _check_prices(what: str, stage: Any, findings: Findings) -> None:
    """Check that only what memory made a stage give up of what its statements propagate has prices."""
    entries = stage.get("relaxed") or ()
    for entry in entries:
        price, peak = entry.get("price_s"), entry.get("peak_bytes")
        if (price is None) is not (peak is None):
            findings.add("stages", f"{what} tells of {entry['name']} a price and no peak, or a peak and no price")
        if price is not None and (entry["why"], entry["source"]) != ("memory", "propagated"):
            findings.add("stages", f"{what} tells a price of {entry['name']}, which it did not give up for memory")
    if stage.get("unlimited") is not None and not any(
        (entry["why"], entry["source"]) == ("memory", "propagated") for entry in entries
    ):
        findings.add("stages", f"{what} tells of itself without the memory limit, for which it gave up nothing")


def _within(wanted: Sequence[str], have: Sequence[str]) -> bool:
    """Whether the names in `wanted` are all in `have`, in that order."""
    rest = iter(have)
    return all(name in rest for name in wanted)
