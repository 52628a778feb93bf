"""In which form XLA gets a plan: as was asked for, or in the one in which a simulated step is quicker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoshard.api.simulate import check_form, simulate
from autoshard.errors import InputError, UnsupportedError
from autoshard.plan_record import RUN_FORMS, ChosenForm, RunForm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autoshard.api.plans import Plan
    from autoshard.search_options import Progress
    from autoshard.simulation.result import Simulation

AUTO = "auto"
WORTH = 0.005
"""The least share of a step for which the written-out collectives, which are those of the plan, are given up."""


def choose_form(
    plan: Plan, asked: str, *, compiler: str = "auto", clock: str = "expected", progress: Progress | None = None
) -> ChosenForm | None:
    """The form that is asked for: ``explicit`` (which is None), ``constraints``, or ``auto``, by simulation.

    compiler, clock: those of `simulate`; the TPU compiler takes seconds to minutes. Raises `InputError` for an unknown
    form, `UnsupportedError` where the one that is asked for cannot say what is stated about the program.
    """
    if asked not in (*RUN_FORMS, AUTO):
        raise InputError(f"no form {asked!r}; there are {', '.join((*RUN_FORMS, AUTO))}")
    if asked == "explicit":
        return None
    if asked != AUTO:
        check_form(plan, asked)
        return ChosenForm(asked="constraints", form="constraints")

    def run(form: str, by: str) -> Simulation:
        if progress is not None:
            progress(f"simulating a step as {form}")
        return simulate(plan, form=form, compiler=by, clock=clock)

    return by_one_judge(run, compiler)[1]


def by_one_judge(run: Callable[[str, str], Simulation], compiler: str) -> tuple[list[Simulation], ChosenForm]:
    """Simulations of one plan in all forms in which it may run, and the form to choose. run: of a form, by a compiler.

    Where the compiler refuses all of them and need not be the judge, our own scheduler is.
    """
    found, refused = _tried(run, compiler)
    if not found and compiler == AUTO:
        before = [f"not by the compiler: {text}" for text in refused]
        found, refused = _tried(run, "own")
        refused = [*before, *refused]
    if not found:
        raise UnsupportedError(f"form 'auto': neither form can be judged: {'; '.join(refused)}")
    return found, chosen_of(found, refused)


def _tried(run: Callable[[str, str], Simulation], compiler: str) -> tuple[list[Simulation], list[str]]:
    """The simulations that there are, and why others are missing."""
    found, refused = [], []
    for form in RUN_FORMS:
        try:
            found.append(run(form, compiler))
        except UnsupportedError as error:
            refused.append(f"{form}: {error}")
    return found, refused


def chosen_of(simulations: Sequence[Simulation], notes: Sequence[str] = ()) -> ChosenForm:
    """The quickest of some simulations of one plan in different forms; explicit unless another one is worth it."""
    seconds: dict[RunForm, float] = {form: s.seconds for form in RUN_FORMS for s in simulations if s.form == form}
    judges = {s.scheduler for s in simulations}
    if not seconds or len(judges) != 1:
        raise InputError("the forms of a plan are compared by one judge")
    best = min(seconds, key=lambda form: (seconds[form], form != "explicit"))
    if "explicit" in seconds and seconds[best] > (1 - WORTH) * seconds["explicit"]:
        best = RUN_FORMS[0]
    told = dict.fromkeys(note for s in simulations for note in s.notes)
    return ChosenForm(asked=AUTO, form=best, judge=judges.pop(), seconds={**seconds}, notes=(*notes, *told))
