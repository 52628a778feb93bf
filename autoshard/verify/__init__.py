"""Verification: is a plan right? Shares no code with the rooms that made it.

`verify_file` does the checks of a plan.json; `check_plan` is the first of them alone, without JAX. `Asked` is what a
plan was asked for, where no config says it.
"""

from autoshard.verify.asked import Asked
from autoshard.verify.plan.checker import Checked, Finding, check_plan
from autoshard.verify.report import Check, Status, Verification
from autoshard.verify.runs.checks import Runnable, verify_file, verify_plan

__all__ = [
    "Asked",
    "Check",
    "Checked",
    "Finding",
    "Runnable",
    "Status",
    "Verification",
    "check_plan",
    "verify_file",
    "verify_plan",
]
