"""In which form XLA gets a plan: as was asked for, or in the one in which a simulated step is quicker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from autoshard.api.held_forms import check_held
from autoshard.api.simulate import check_form, simulate
from autoshard.errors import InputError, UnsupportedError
from autoshard.plan_record import PLACED_FORMS, RUN_FORMS, ChosenForm, RunForm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autoshard.api.plans import Plan
    from autoshard.search_options import Progress
    from autoshard.simulation.result import Simulation

AUTO, ALL = "auto", "all"
JUDGED: Mapping[str, tuple[RunForm, ...]] = {AUTO: PLACED_FORMS, ALL: RUN_FORMS}
"""What may be asked for instead of a form, and the forms among which a simulated step decides."""
WORTH = 0.005
"""The least share of a step for which the written-out collectives, which are those of the plan, are given up."""

UNJUDGED = (
    "the forms were not judged, since the run was stopped: the collectives are written out; `plan.with_form('auto')` "
    "and `autoshard simulate PLAN --form auto --write` judge them"
)


def in_asked_form(plan: Plan, asked: str, progress: Progress | None = None) -> Plan:
    """The plan in the form that was asked for; written out where Ctrl-C comes before its forms were judged.

    That takes up to minutes, in which a search that Ctrl-C ended would seem not to have heard of it.
    """
    if asked not in JUDGED or not plan.run.get("interrupted"):
        try:
            return plan.with_form(asked, progress=progress)
        except KeyboardInterrupt:
            if asked not in JUDGED:
                raise
    return replace(plan, notes=(*plan.notes, UNJUDGED), run={**plan.run, "interrupted": True})


def choose_form(
    plan: Plan, asked: str, *, compiler: str = "auto", clock: str = "expected", progress: Progress | None = None
) -> ChosenForm | None:
    """The form that is asked for: ``explicit`` (which is None), ``constraints``, ``shardings``, or by simulation
    ``auto``, of the first two, and ``all``, of the three.

    compiler, clock: those of `simulate`; the TPU compiler takes seconds to minutes. Raises `InputError` for an unknown
    form, `UnsupportedError` where the one that is asked for cannot say what is stated about the program.
    """
    if asked not in RUN_FORMS and asked not in JUDGED:
        raise InputError(f"no form {asked!r}; there are {', '.join((*RUN_FORMS, *JUDGED))}")
    if asked == "explicit":
        return None
    if asked not in JUDGED:
        check_held(plan, asked)
        check_form(plan, asked)
        return ChosenForm.from_dict({"asked": asked, "form": asked})

    def run(form: str, by: str) -> Simulation:
        if progress is not None:
            progress(f"simulating a step as {form}")
        return simulate(plan, form=form, compiler=by, clock=clock)

    return by_one_judge(plan, run, compiler, JUDGED[asked])[1]


def by_one_judge(
    plan: Plan, run: Callable[[str, str], Simulation], compiler: str, forms: Sequence[RunForm] = PLACED_FORMS
) -> tuple[list[Simulation], ChosenForm]:
    """Simulations of one plan in some forms in which it may run, and the form to choose. run: of a form, by a compiler.

    Where the compiler refuses all of them and need not be the judge, our own scheduler is.
    """
    found, refused = _tried(plan, run, compiler, forms)
    if not found and compiler == AUTO:
        before = [f"not by the compiler: {text}" for text in refused]
        found, refused = _tried(plan, run, "own", forms)
        refused = [*before, *refused]
    if not found:
        raise UnsupportedError(f"no form can be judged: {'; '.join(refused)}")
    return found, chosen_of(found, refused, AUTO if tuple(forms) == JUDGED[AUTO] else ALL)


def _tried(
    plan: Plan, run: Callable[[str, str], Simulation], compiler: str, forms: Sequence[RunForm]
) -> tuple[list[Simulation], list[str]]:
    """The simulations that there are, and why others are missing. All by one judge: where there is no compiler, what
    our own scheduler does not know is left out."""
    found, refused = [], []
    for form in forms:
        try:
            check_held(plan, form)
            found.append(run(form, compiler))
        except UnsupportedError as error:
            refused.append(f"{form}: {error}")
    return found, refused


def chosen_of(
    simulations: Sequence[Simulation], notes: Sequence[str] = (), asked: Literal["auto", "all"] = AUTO
) -> ChosenForm:
    """The quickest of some simulations of one plan in different forms; explicit unless another one is worth it."""
    seconds: dict[RunForm, float] = {form: s.seconds for form in RUN_FORMS for s in simulations if s.form == form}
    judges = {s.scheduler for s in simulations}
    if not seconds or len(judges) != 1:
        raise InputError("the forms of a plan are compared by one judge")
    best = min(seconds, key=lambda form: (seconds[form], RUN_FORMS.index(form)))
    if "explicit" in seconds and seconds[best] > (1 - WORTH) * seconds["explicit"]:
        best = RUN_FORMS[0]
    told = dict.fromkeys(note for s in simulations for note in s.notes)
    return ChosenForm(asked=asked, form=best, judge=judges.pop(), seconds={**seconds}, notes=(*notes, *told))
