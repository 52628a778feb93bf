"""Do the shardings hold that the function itself states (ops ``sharding_constraint``), and does the plan say so?"""

from dataclasses import replace
from typing import Any

from autoshard.verify.check_flow import Flow
from autoshard.verify.check_layout import Atoms, Impossible
from autoshard.verify.check_program import Findings
from autoshard.verify.check_statements import Pin, read_pin


def check_in_code(plan: Any, flow: Flow, findings: Findings) -> None:
    """Each constraint against the form that the uses of its result start from; each is to be among the statements."""
    graph, mesh = flow.graph, flow.mesh
    stated = {(v, _said(s["sharding"], mesh)) for s in plan["statements"] if s["kind"] == "pin" for v in s["values"]}
    for op in graph.nodes.values():  # those inside of a user's shard_map are not among them
        text = op.attrs.get("sharding") if op.kind == "sharding_constraint" else None
        if text is None:
            continue
        what = f"the sharding constraint in the code at {op.source or op.label}: {text}"
        (value,) = op.results
        try:
            pin = read_pin(text, mesh)
        except Impossible as error:
            findings.add("statements", f"{what}: {error}")
            continue
        if (value, _said(text, mesh)) not in stated:
            findings.add("statements", f"{what} is not among the plan's statements")
        held = flow.form(value)
        fault = "" if held is None else pin.broken_by(held, mesh)
        if held is not None and fault:
            findings.add("statements", f"{what} is broken: {graph.values[value].name} is {held.text(mesh)}: {fault}")


def _said(text: str, mesh: Atoms) -> Pin | None:
    """What a sharding says, however it is written; None where it cannot be read (told where statements are checked)."""
    try:
        return replace(read_pin(text, mesh), text="")
    except Impossible:
        return None
