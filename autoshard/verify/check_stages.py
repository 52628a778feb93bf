"""Do the stages of a plan add up: costs that rise, bounds below them, and placements that later stages kept?"""

from collections.abc import Sequence
from typing import Any

from autoshard.verify.check_cost import same
from autoshard.verify.check_flow import Flow
from autoshard.verify.check_layout import Holding
from autoshard.verify.check_program import PROGRAM_OP, Findings


def check_stages(plan: Any, flow: Flow, findings: Findings) -> int:
    """Every stage against the ones around it and against the schedule; returns how many there are."""
    stages = plan.get("stages") or []
    rounding = 2 * float(plan["cost"]["rounding_s"])
    before: float | None = None
    for number, stage in enumerate(stages):
        what = f"stage {number}"
        cost, bound = float(stage["cost_s"]), float(stage["bound_s"])
        slack = rounding + 1e-6 * abs(cost) + float(stage["gap"]) * cost
        if bound > cost + rounding:
            findings.add("stages", f"{what} has a bound of {bound} s above its cost of {cost} s")
        if not same(stage["gap"], max(0.0, cost - bound) / max(cost, 1e-30), 1e-6):
            findings.add("stages", f"{what}: gap {stage['gap']} is not that of {cost} s over {bound} s")
        if before is not None and bound > 0 and cost < before * (1 - 1e-9) - slack - _gap_of(stages[number - 1]):
            findings.add("stages", f"{what} costs {cost} s, less than the stage before it, which had fewer demands")
        limit = next((s["bytes"] for s in plan["statements"] if s["kind"] == "memory_limit"), None)
        if limit is not None and stage["peak_bytes"] > limit:
            findings.add("stages", f"{what} holds {stage['peak_bytes']} bytes, the limit is {limit}")
        _kept(what, stage["placed"], plan, flow, findings)
        for entry in stage.get("relaxed") or ():
            _relaxed(what, entry, limit, plan, flow, findings)
        before = cost
    if stages:
        if not same(stages[-1]["cost_s"], plan["objective_s"]):
            findings.add("stages", f"the plan costs {plan['objective_s']} s, its last stage {stages[-1]['cost_s']} s")
        if not same(stages[-1]["bound_s"], plan["bound_s"]):
            findings.add(
                "stages", f"the plan's bound is {plan['bound_s']} s, the last stage's {stages[-1]['bound_s']} s"
            )
        joint = plan.get("joint")
        if joint is not None and float(joint["bound_s"]) > float(plan["objective_s"]) + rounding:
            findings.add("stages", f"all at once is said to cost at least {joint['bound_s']} s, the stages cost less")
    return len(stages)


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
