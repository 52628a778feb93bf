"""What tests of restrictions share: a mesh, and plans that the independent checker has looked at."""

from typing import Any

from plan_cases import f32

from autoshard import plan
from autoshard.api.plans import Plan
from autoshard.verify import check_plan

AXES = {"x": 2, "y": 4}
MLP = (f32(64, 64), f32(64, 64), f32(512, 64))


def planned(f: Any, *specs: Any, **options: Any) -> Plan:
    """A plan that the checker finds nothing in."""
    found = plan(f, *specs, mesh=AXES, hardware="tpu_v5e", **options)
    checked = check_plan(found.to_dict())
    assert checked.ok, checked.findings
    return found


def findings_with(found: Plan, other: Plan) -> list[str]:
    """What the checker says of a plan that claims the statements of another."""
    data = found.to_dict()
    data["statements"] = other.to_dict()["statements"]
    return [str(f) for f in check_plan(data).findings]
