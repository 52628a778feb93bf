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


def _kept(what: str, placed: Any, plan: Any, flow: Flow, findings: Findings) -> None:
    """What a stage placed is still there, in its order."""
    graph, names, placements = flow.graph, plan["mesh"]["atoms"], plan["schedule"]["placements"]

    def compare(where: str, lists: Sequence[Sequence[str]], have: Sequence[Sequence[int]] | None) -> None:
        if have is None or len(have) != len(lists):
            findings.add("stages", f"{what} placed axes on {where}, which the plan does not have so")
            return
        for index, (wanted, atoms) in enumerate(zip(lists, have, strict=True)):
            rest = iter(names[a] for a in atoms)
            if not all(name in rest for name in wanted):
                now = ", ".join(names[a] for a in atoms)
                findings.add(
                    "stages", f"{what} placed {', '.join(wanted)} on {where} ({index}); the plan has {{{now}}}"
                )

    def dims(held: Holding | None) -> list[tuple[int, ...]] | None:
        return None if held is None else [run.atoms for run in held.runs]

    for key, lists in (*placed["inputs"].items(), *placed["boundaries"].items()):
        compare(f"{graph.values[int(key)].name}", lists, dims(flow.defined.get(int(key))))
    for key, lists in placed["shared"].items():
        compare(f"{graph.values[int(key)].name}", lists, dims(flow.form(int(key))))
    for key, lists in placed["outputs"].items():
        way = flow.uses.get((PROGRAM_OP, int(key), -1))
        compare(f"output {graph.output_names[int(key)]}", lists, None if way is None else dims(way.end))
    for key, lists in placed["ops"].items():
        node = graph.nodes.get(int(key))
        compare(f"op {key}" if node is None else node.label, lists, placements.get(key, {}).get("factors"))
