"""The checks of a refusal.json against its config: what was asked for, and the program of the function.

That there is no plan is judged by `autoshard.api.bound.check_refusal`.
"""

from collections.abc import Mapping
from typing import Any

from autoshard.constraints import MatchedKernel, registry
from autoshard.constraints.kernels_of import with_kernels
from autoshard.errors import AutoshardError
from autoshard.verify.derived import ASKED, check_derived
from autoshard.verify.report import Verification, failed, not_done, ok
from autoshard.verify.runs.checks import as_asked, difference_to, runnable_of

TRACED = "the program is that of the function"


def verify_refusal(data: Mapping[str, Any], *, name: str = "the refusal") -> Verification:
    """Compare the content of a refusal.json with its config and with the function that the config names.

    That there is no plan is another check: `autoshard.api.bound.check_refusal`.
    """
    runnable, reason = None, "the refusal carries no config that says how to find its function"
    if data["config"] is not None:
        try:
            runnable = runnable_of(data["config"], data["program"])
        except AutoshardError as error:
            reason = f"the function cannot be built from the config of the refusal: {error}"
    traced, problem = (None, None) if runnable is None else (runnable.traced, runnable.problem)
    if data["config"] is None:
        first = not_done(ASKED, "statements, mesh, machine and limits are taken from the refusal itself: not derived")
    else:
        first = check_derived(data, None, traced, problem, refused=True)
    if runnable is None:
        return Verification(name, (first, not_done(TRACED, reason)))
    kernels = registry.read_only(MatchedKernel, data["statements"])
    program = with_kernels(as_asked(runnable, data), kernels)
    change = difference_to(program, data)
    second = failed(TRACED, [change]) if change else ok(TRACED, [f"{len(list(program.walk()))} ops"])
    return Verification(name, (first, second))
