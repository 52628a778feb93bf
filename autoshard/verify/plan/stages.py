"""Do the stages of a plan add up: costs that rise, bounds below them, and placements that later stages kept?"""

from collections.abc import Sequence
from typing import Any

from autoshard.verify.plan.bound import COARSER, check_claim
from autoshard.verify.plan.cost import RELATIVE, same
from autoshard.verify.plan.flow import Flow
from autoshard.verify.plan.layout import Holding
from autoshard.verify.plan.program import PROGRAM_OP, Findings
from autoshard.verify.plan.statements import limit_of

_ALL_IN_FORCE = "from the first stage on"
"""In a note of the plan where every stage had all statements."""
_NEAR = 1.01
"""Searches that end at an accepted gap may find the optimum of less dearer than that of more, by so much."""


def check_stages(plan: Any, flow: Flow, findings: Findings) -> int:
    """Every stage against the ones around it and against the schedule; returns how many there are."""
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
        for entry in stage.get("relaxed") or ():
            _relaxed(what, entry, limit, plan, flow, findings)
        before = cost
    if stages:
        _check_last(stages[-1], plan, findings)
    return len(stages)


def _check_price(what: str, stage: Any, before: float | None, plan: Any, findings: Findings) -> None:
    """How much dearer than the stage before. The first one than the optimum without pins, which is not in the file, or
    than that all at once: of stages by names, and where all statements are in force from the start.
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
    """The last stage is the plan."""
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
    """What people call a place that a stage speaks of, and the atoms by dimension or factor that the plan has there."""
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
    """What a stage placed is still there, in its order."""
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
    """What a stage says that it could not keep is not there."""
    if entry["why"] not in ("statements", "placements", "memory") or (entry["why"] == "memory" and limit is None):
        findings.add("stages", f"{what} gave up {entry['name']} for {entry['why']!r}, of which the plan says nothing")
    names = plan["mesh"]["atoms"]
    found = [_have(entry["what"], key, plan, flow) for key in entry["keys"]]
    index = int(entry["on"])
    if not found or any(have is None or not 0 <= index < len(have) for _, have in found):
        findings.add("stages", f"{what} gave up {entry['name']} ({index}), a place that the plan does not have")
    elif all(have is not None and _within(entry["axes"], [names[a] for a in have[index]]) for _, have in found):
        where = ", ".join(name for name, _ in found[:4])
        findings.add("stages", f"{what} says that {', '.join(entry['axes'])} on {where} could not be kept; it is there")


def _within(wanted: Sequence[str], have: Sequence[str]) -> bool:
    rest = iter(have)
    return all(name in rest for name in wanted)
