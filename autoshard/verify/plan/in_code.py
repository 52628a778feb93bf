"""Do the shardings hold that the function itself states (ops ``sharding_constraint``), and does the plan say so?"""

import re
from dataclasses import replace
from math import prod
from typing import Any

from autoshard.verify.plan.flow import Flow
from autoshard.verify.plan.layout import Atoms, Impossible
from autoshard.verify.plan.orders import is_own_mesh, read_mesh
from autoshard.verify.plan.program import Findings
from autoshard.verify.plan.statements import Pin, of_questions, read_pin


def check_in_code(plan: Any, flow: Flow, findings: Findings) -> None:
    """Check that each constraint holds where the ways to the uses of its result begin, and is among the statements.

    One about what a question asks for otherwise may have given way, which is told.
    """
    graph, mesh = flow.graph, flow.mesh
    if plan["program"].get("in_code", "hard") in ("hints", "ignore"):
        return  # `check_asked` finds out whether that was asked for
    _check_alike(plan, flow, findings)
    asked = of_questions(plan)
    pins: dict[tuple[str, int], list[Any]] = {}
    for statement in plan["statements"]:
        for key in ("values", "outputs") if statement["kind"] == "pin" else ():
            for number in statement[key]:
                pins.setdefault((key, number), []).append(statement)
    for op in graph.nodes.values():  # those inside of a user's shard_map are not among them
        text = op.attrs.get("sharding") if op.kind == "sharding_constraint" else None
        if text is None:
            continue
        what = f"the sharding constraint in the code at {op.source or op.label}: {text}"
        (value,) = op.results
        key, spoken_of = _on(op, graph)
        stays = spoken_of - asked[key]
        if spoken_of and not stays:
            continue
        here = [s for s in pins.get((key, min(stays, default=-1)), ()) if stays.issubset(s[key])]
        if "mesh" in op.attrs and _elsewhere(op.attrs["mesh"], plan):
            if not any(s.get("mesh") == op.attrs["mesh"] and s.get("stated") == text for s in here):
                findings.add("statements", f"{what} on {op.attrs['mesh']} is not among the plan's statements")
            continue  # `check_orders` checks that statements on other meshes hold
        text = _without_single(text, op, plan)
        try:
            pin = read_pin(text, mesh)
        except Impossible as error:
            findings.add("statements", f"{what}: {error}")
            continue
        if _said(text, mesh) not in [_said(s["sharding"], mesh) for s in here]:
            findings.add("statements", f"{what} is not among the plan's statements")
        gave_way = stays != spoken_of or value in asked["values"]
        held = None if gave_way else flow.form(value)
        fault = "" if held is None else pin.broken_by(held, mesh)
        if held is not None and fault:
            findings.add("statements", f"{what} is broken: {graph.values[value].name} is {held.text(mesh)}: {fault}")


def _without_single(text: str, op: Any, plan: Any) -> str:
    """A sharding in the code without axes of size 1 that the plan's mesh lacks: they cut nothing."""
    for name, size in op.attrs.get("mesh_axes", ()):
        if size == 1 and name not in plan["mesh"]["axes"]:
            text = re.sub(rf'(, *)?"{re.escape(name)}"(?(1)|(, *)?)', "", text)
    return text


def _on(op: Any, graph: Any) -> tuple[str, set[int]]:
    """What a constraint speaks of: an argument or results of the program, where a `jit` around all of it has that
    sharding, else the constraint's own result. A key of statements, and the numbers that are under it."""
    side = op.attrs.get("border")
    if side == "out_shardings":
        return "outputs", {k for k, v in enumerate(graph.body.results) if v == op.results[0]}
    return "values", {op.operands[0] if side == "in_shardings" else op.results[0]}


def _check_alike(plan: Any, flow: Flow, findings: Findings) -> None:
    """Values that the code wants sharded alike are in one group, which is checked where groups are."""
    members: dict[Any, list[int]] = {}
    for op in flow.graph.nodes.values():
        if op.kind == "sharding_constraint" and "alike" in op.attrs:
            members.setdefault(op.attrs["alike"], []).extend(op.results)
    groups = [set(s["values"]) for s in plan["statements"] if s["kind"] == "same_sharding"]
    for values in members.values():
        if len(values) > 1 and not any(group.issuperset(values) for group in groups):
            names = ", ".join(flow.graph.values[v].name for v in values)
            findings.add("statements", f"the code has {names} sharded alike, and no statement of the plan says so")


def _elsewhere(mesh: str, plan: Any) -> bool:
    """Whether a mesh in the code has the devices of the plan's mesh, but other axes or another order."""
    return read_mesh(mesh)[0].devices == prod(plan["mesh"]["axes"].values()) and not is_own_mesh(mesh, plan)


def _said(text: str, mesh: Atoms) -> Pin | None:
    """A sharding without its text, so that spellings compare equal; None where it cannot be read (found elsewhere)."""
    try:
        return replace(read_pin(text, mesh), text="")
    except Impossible:
        return None
