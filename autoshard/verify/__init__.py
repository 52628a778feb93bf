"""Verification: is a plan right? Shares no code with the rooms that made it.

`verify_file` runs all checks of a plan.json; `check_plan` runs only the first of them, without JAX. `Asked` says what a
plan was asked for, where no config does. `verify_refusal` compares a refusal.json with what was asked for.
"""

from autoshard.verify.asked import Asked
from autoshard.verify.plan.checker import Checked, Finding, check_plan
from autoshard.verify.report import Check, Status, Verification
from autoshard.verify.runs.checks import Runnable, verify_file, verify_plan
from autoshard.verify.runs.refusals import verify_refusal

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
    "verify_refusal",
]
