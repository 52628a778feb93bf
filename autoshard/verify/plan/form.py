"""Does the form in which a plan runs leave to XLA what the user stated?

Written out, a plan runs as planned. As ``constraints`` the collectives are the partitioner's, as ``shardings`` all that
lies between inputs and outputs.
"""

from collections.abc import Mapping
from typing import Any, Final

from autoshard.verify.plan.flow import Flow
from autoshard.verify.plan.program import Findings

_WHAT_MOVES: Final = frozenset({"no_collective", "max_reshards", "manual_computation"})
_EVERY_FORM: Final = frozenset({"barrier", "kernel", "manual", "host_memory_limit"})
"""Kinds of statements that hold in any form: of the search, or of regions that are written out in all of them."""
_PLACES: Final = frozenset({"pin", "same_sharding", "memory_kind"})


def check_form_holds(plan: Mapping[str, Any], flow: Flow, findings: Findings) -> None:
    """Check every statement against the plan's ``form``; a plan without one is written out."""
    form = (plan.get("form") or {}).get("form", "explicit")
    if form == "explicit":
        return
    graph = flow.graph
    borders = set(graph.body.args[: len(graph.input_names)])
    for one in plan["statements"]:
        kind = one["kind"]
        if form == "constraints":
            broken = kind in _WHAT_MOVES
        elif kind in _PLACES:
            broken = any(int(value) not in borders for value in one["values"])
        else:
            broken = kind not in _EVERY_FORM
        if broken:
            findings.add("statements", f"the plan runs as {form}, in which XLA need not hold the {kind} that is stated")
