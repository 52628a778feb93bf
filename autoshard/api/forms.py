"""In which form XLA gets a plan: as was asked for, or in the one in which a simulated step is quicker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from autoshard.api.held_forms import check_held
from autoshard.api.simulate import check_form, simulate
from autoshard.errors import InputError, UnsupportedError
from autoshard.plan_record import PLACED_FORMS, RUN_FORMS, ChosenForm, RunForm
from autoshard.request.asking import asked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autoshard.api.plans import Plan
    from autoshard.request.request import Request
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


def planned_in_form(request: Request, planned: Callable[[Request], Plan]) -> Plan:
    """The plan that a request asks for, in its form; written out where Ctrl-C comes before its forms were judged.

    That takes up to minutes, in which a search that Ctrl-C ended would seem not to have heard of it. planned: the plan
    of a request, written out. A form that cannot hold what is stated is refused before the search.
    """
    form = request.form
    if form not in JUDGED and request.mesh_search is None:
        question = asked(request)
        check_held(question.problem.program, question.statements, form)
    plan = planned(replace(request, form="explicit"))
    if form not in JUDGED or not plan.run.get("interrupted"):
        try:
            return plan.with_form(form, progress=request.options.progress)
        except KeyboardInterrupt:
            if form not in JUDGED:
                raise
    return replace(plan, notes=(*plan.notes, UNJUDGED), run={**plan.run, "interrupted": True})


def choose_form(
    plan: Plan, form: str, *, compiler: str = "auto", clock: str = "expected", progress: Progress | None = None
) -> ChosenForm | None:
    """The form that is asked for: ``explicit`` (which is None), ``constraints``, ``shardings``, or by simulation
    ``auto``, of the first two, and ``all``, of the three.

    compiler, clock: those of `simulate`; the TPU compiler takes seconds to minutes. Raises `InputError` for an unknown
    form, `UnsupportedError` where the one that is asked for cannot say what is stated about the program.
    """
    if form not in RUN_FORMS and form not in JUDGED:
        raise InputError(f"no form {form!r}; there are {', '.join((*RUN_FORMS, *JUDGED))}")
    if form == "explicit":
        return None
    if form not in JUDGED:
        check_held(plan.program, plan.statements, form)
        check_form(plan, form)
        return stated(form)

    def run(one: str, by: str) -> Simulation:
        if progress is not None:
            progress(f"simulating a step as {one}")
        return simulate(plan, form=one, compiler=by, clock=clock)

    return by_one_judge(plan, run, compiler, form)[1]


def stated(form: str) -> ChosenForm | None:
    """A form that nobody had to judge; None for ``explicit``, which plans say nothing of."""
    return None if form == "explicit" else ChosenForm.from_dict({"asked": form, "form": form})


def by_one_judge(
    plan: Plan, run: Callable[[str, str], Simulation], compiler: str, asked: str
) -> tuple[list[Simulation], ChosenForm]:
    """Simulations of one plan in the forms in which it may run, and the form to choose. run: of a form, by a compiler;
    asked: ``auto`` or ``all`` (`JUDGED`).

    Where the compiler refuses all of them and need not be the judge, our own scheduler is.
    """
    found, refused = _tried(plan, run, compiler, JUDGED[asked])
    if not found and compiler == AUTO:
        before = [f"not by the compiler: {text}" for text in refused]
        found, refused = _tried(plan, run, "own", JUDGED[asked])
        refused = [*before, *refused]
    if not found:
        raise UnsupportedError(f"no form can be judged: {'; '.join(refused)}")
    return found, chosen_of(found, refused, asked)


def _tried(
    plan: Plan, run: Callable[[str, str], Simulation], compiler: str, forms: Sequence[RunForm]
) -> tuple[list[Simulation], list[str]]:
    """The simulations that there are, and why others are missing. All by one judge: where there is no compiler, what
    our own scheduler does not know is left out."""
    found, refused = [], []
    for form in forms:
        try:
            check_held(plan.program, plan.statements, form)
            found.append(run(form, compiler))
        except UnsupportedError as error:
            refused.append(f"{form}: {error}")
    return found, refused


def chosen_of(simulations: Sequence[Simulation], notes: Sequence[str] = (), asked: str = AUTO) -> ChosenForm:
    """The quickest of some simulations of one plan in different forms; explicit unless another one is worth it."""
    seconds: dict[RunForm, float] = {form: s.seconds for form in RUN_FORMS for s in simulations if s.form == form}
    judges = {s.scheduler for s in simulations}
    if not seconds or len(judges) != 1:
        raise InputError("the forms of a plan are compared by one judge")
    best = min(seconds, key=lambda form: (seconds[form], RUN_FORMS.index(form)))
    if "explicit" in seconds and seconds[best] > (1 - WORTH) * seconds["explicit"]:
        best = RUN_FORMS[0]
    told = dict.fromkeys(note for s in simulations for note in s.notes)
    judged = {"judge": judges.pop(), "seconds": seconds, "notes": (*notes, *told)}
    return ChosenForm.from_dict({"asked": asked, "form": best, **judged})
