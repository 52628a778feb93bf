"""The check that a plan answers what was asked: derived again from its config, or from what the caller passed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autoshard.errors import AutoshardError, in_words
from autoshard.verify.asked import Asked, config_of, derive
from autoshard.verify.plan.asked import check_asked, check_refused
from autoshard.verify.plan.program import Findings
from autoshard.verify.report import Check, failed, not_done, ok

if TYPE_CHECKING:
    from autoshard.config.workload import Workload
    from autoshard.frontends.jax.function import TracedFunction

ASKED = "what was asked for: statements, mesh, machine, limits and priorities, derived again"
NOT_DERIVED = (
    "statements, mesh, machine, limits and priorities are taken from the plan itself: not derived",
    "the plan carries no config; call Plan.verify(f, *specs, mesh=..., hardware=..., constraints=...) with the words "
    "that it was made with",
)


_DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError)
"""Errors that reading a damaged file raises."""


def _damaged(error: Exception) -> str:
    return f"the plan is damaged: {in_words(error)}"


def check_derived(
    data: Mapping[str, Any],
    asked: Asked | None = None,
    traced: "TracedFunction | None" = None,
    problem: "Workload | None" = None,
    *,
    refused: bool = False,
) -> Check:
    """Compare a plan that passed `check_plan` with what was asked for: `asked`, or else its config.

    traced, problem: the function of the plan, and what it was built from, as far as they can be had. refused: `data` is
    the content of a refusal.json. Raises `InputError` where `asked` itself cannot be read.
    """
    findings = Findings()
    compare = check_refused if refused else check_asked
    if asked is not None:
        try:
            facts = compare(data, derive(asked, data, traced), findings)
        except AutoshardError:
            raise
        except _DAMAGE as error:
            return failed(ASKED, [_damaged(error)])
    else:
        try:
            config = config_of(data)
        except OSError as error:
            return not_done(ASKED, NOT_DERIVED[0], f"{error}; verify the plan where its config was solved")
        except (AutoshardError, KeyError, TypeError, AttributeError, ValueError) as error:
            return failed(ASKED, [f"config: no plan comes from the config in this file: {error}"])
        try:
            derived = derive(Asked.of_config(config, problem), data, traced)
        except AutoshardError as error:
            return failed(ASKED, [f"config: no plan comes from the config in this file: {error}"])
        except _DAMAGE as error:
            return failed(ASKED, [_damaged(error)])
        try:
            facts = compare(data, derived, findings)
            if problem is not None and not refused:
                _check_program(data, problem, findings)
        except _DAMAGE as error:
            return failed(ASKED, [_damaged(error)])
    return failed(ASKED, [f"{topic}: {text}" for topic, text in findings]) if findings else ok(ASKED, facts)


def _check_program(data: Mapping[str, Any], problem: "Workload", findings: Findings) -> None:
    """Compare the program's name and its useful FLOP, which only a config tells."""
    if data["program"]["name"] != problem.name:
        findings.add("program", f"asked: {problem.name}; found in the plan: {data['program']['name']}; solve again")
    flop = None if problem.model is None else float(problem.model.model_flop_per_step)
    if data["model_flop"] != flop:
        findings.add(
            "program", f"asked: {flop} useful FLOP in a step; found in the plan: {data['model_flop']}; solve again"
        )
