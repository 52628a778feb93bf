"""Does a file describe the machine that it was planned on as that is, placed for the axes of its mesh?"""

from collections.abc import Mapping
from typing import Any

from autoshard.costmodels import Machine
from autoshard.verify.plan.program import Findings


def check_machine(plan: Mapping[str, Any], machine: Machine, axes: Mapping[str, int], findings: Findings) -> None:
    """Check the name and layout of ``hardware`` against the machine there, and its axes against those of the mesh."""
    if list(machine.axes) != list(axes.items()):
        findings.add("mesh", f"the machine is placed for axes {dict(machine.axes)}, the mesh has {dict(axes)}")
    if plan["hardware"]["name"] != machine.profile.name:
        findings.add(
            "mesh", f"hardware.name is {plan['hardware']['name']!r}, the machine's profile {machine.profile.name!r}"
        )
    if _plain(machine.describe()) != plan["hardware"]["layout"]:
        findings.add("mesh", "hardware.layout does not describe hardware.machine")
    settings = (plan["config"] or {}).get("settings", {})
    asked = settings.get("mesh")
    if isinstance(asked, dict):
        sizes = {name: axis["size"] if isinstance(axis, dict) else axis for name, axis in asked.items()}
        if sizes != dict(axes):
            findings.add("mesh", f"the config asks for mesh axes {sizes}, the plan is for {dict(axes)}")


def _plain(value: Any) -> Any:
    """The value as it comes back from JSON."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
