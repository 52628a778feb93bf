"""Near rivals of a plan, simulated too: where modelled seconds are too close to call, the schedule decides.

The model is some percent off the compiler's schedule (experiments/compiler_judge), so plans that it prices within a few
percent of each other are in no order that can be relied on. This costs a compilation of each plan in each form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autoshard.api.forms import ALL, AUTO, WORTH, chosen_of, stated
from autoshard.api.held_forms import check_held
from autoshard.api.simulate import simulate
from autoshard.errors import InputError, UnsupportedError
from autoshard.interrupts import heeded
from autoshard.plan_record import PLACED_FORMS, RUN_FORMS, ChosenForm, JudgedRival, JudgedRivals
from autoshard.questions.again import options_of
from autoshard.questions.rivals import GIVEN, Near, Rivals, near_rivals
from autoshard.simulation.ahead import judge_of

if TYPE_CHECKING:
    from autoshard.api.plans import Plan
    from autoshard.search_options import Progress
    from autoshard.simulation.result import Simulation

MOST = 1.0
"""The largest share above the plan's modelled seconds within which rivals are looked for."""
TOLD = "chosen by simulation among"
"""Part of the note of a plan that is not the one of the least modelled seconds."""
Keep = Callable[[str, str, str], None]
"""Is handed the name of a plan, its form, and the compiled text."""


@dataclass(frozen=True)
class Judged:
    """A plan and its near rivals on the clock of one judge.

    plan: the one that was chosen, in the form in which it is quickest. record: who was compared, as the plan has it
    under `rivals`. simulations: all of them, also of forms in which no plan runs.
    """

    plan: Plan
    record: JudgedRivals
    simulations: tuple[Simulation, ...]

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data, for JSON."""
        return {
            "simulations": [s.to_dict() for s in self.simulations],
            "rivals": self.record.to_dict(),
            "form": self.plan.runs_as,
        }


@heeded()
def simulate_rivals(
    plan: Plan,
    within: float,
    *,
    forms: Sequence[str] = RUN_FORMS[:1],
    compiler: str = "auto",
    clock: str = "expected",
    roles: Mapping[str, Any] | None = None,
    slow: Collection[str] | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
    keep: Keep | None = None,
) -> Judged:
    """Simulate a plan and all plans of its problem that cost at most a share `within` more, and choose the quickest.

    Rivals are those of `autoshard.questions.rivals`; equal plans are simulated once. forms, compiler, clock: those of
    `simulate`. roles: the logical axes of the inputs, for named strategies; slow: mesh axes between slices; by default
    those of the plan's config. The given plan is kept unless another one is quicker by half a percent (`WORTH`), and so
    are written-out collectives. A form that leaves something to XLA that is stated (`held_forms`) is refused.

    A plan that the compiler refuses (for want of memory, say) is not chosen, the given one included. time_limit:
    seconds of wall clock of the search for rivals, a guard; compiling does not count.

    Raises `InputError` for shares and forms that are none, `UnsupportedError` for plans that have no near rivals
    (`near_rivals`) and where the compiler cannot be asked, or refuses all plans.
    """
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 < within <= MOST:
        raise InputError(f"rivals: expected a share above 0 and at most {MOST:g}, such as 0.05, found {within!r}")
    for form in forms:
        if form not in RUN_FORMS:
            raise InputError(f"no form {form!r}; there are {', '.join(RUN_FORMS)}")
    judge, _ = judge_of(plan.machine, compiler)
    if plan.traced is None and judge is not None:
        raise InputError("to be compiled the plan must hold its function: call plan.attach(f, *specs) first")
    asked, between, further = _of_config(plan) if roles is None else (roles, (), ())
    options = replace(options_of(plan), progress=progress).within(time_limit)
    bare = replace(plan, rivals=None, notes=tuple(n for n in plan.notes if TOLD not in n))  # it may be such a choice
    rivals = near_rivals(
        bare, within, roles=asked, slow=between if slow is None else slow, further=further, options=options
    )

    def run(near: Near[Plan], form: str, by: str) -> Simulation:
        if progress is not None:
            progress(f"simulating {near.name} as {form}")
        check_held(near.plan.program, near.plan.statements, form)
        hand = None if keep is None else partial(keep, near.name, form)
        return simulate(near.plan, form=form, compiler=by, clock=clock, name=near.name, keep=hand)

    return _judged(rivals, within, *_by_one_judge(run, rivals.near, forms, compiler))


Run = Callable[["Near[Plan]", str, str], "Simulation"]
_Found = list[tuple["Near[Plan]", dict[str, "Simulation"], dict[str, str]]]
"""Of each plan: the simulations that there are, by form, and why others are missing."""


def _by_one_judge(
    run: Run, near: Sequence[Near[Plan]], forms: Sequence[str], compiler: str
) -> tuple[_Found, tuple[str, ...]]:
    """All plans in all forms. Where the compiler refuses all of them and need not be the judge, our own is, and notes
    say why.
    """
    found = [_forms_of(run, one, forms, compiler) for one in near]
    if any(simulations for _, simulations, _ in found):
        return found, ()
    refused = [f"{one.name} as {form}: {why}" for one, _, reasons in found for form, why in reasons.items()]
    if compiler != AUTO:
        raise UnsupportedError(f"none of {len(near)} plans can be judged: {'; '.join(refused)}")
    own = [_forms_of(run, one, forms, "own") for one in near]
    if not any(simulations for _, simulations, _ in own):
        raise UnsupportedError(f"none of {len(near)} plans can be judged: {'; '.join(refused)}")
    return own, tuple(f"not by the compiler: {text}" for text in refused)


def _forms_of(
    run: Run, near: Near[Plan], forms: Sequence[str], by: str
) -> tuple[Near[Plan], dict[str, Simulation], dict[str, str]]:
    found, refused = {}, {}
    for form in forms:
        try:
            found[form] = run(near, form, by)
        except UnsupportedError as error:
            refused[form] = str(error)
    return near, found, refused


def _judged(rivals: Rivals[Plan], within: float, found: _Found, told: tuple[str, ...]) -> Judged:
    """The choice among what was simulated."""
    forms: dict[str, ChosenForm] = {}
    for near, simulations, refused in found:
        if simulations:
            notes = [f"{form}: {text}" for form, text in refused.items()]
            asked = AUTO if {*simulations, *refused} <= set(PLACED_FORMS) else ALL
            forms[near.name] = chosen_of(list(simulations.values()), notes, asked)
    seconds = {name: form.seconds[form.form] for name, form in forms.items()}
    best = min(seconds, key=lambda name: (seconds[name], name != GIVEN))
    if GIVEN in seconds and seconds[best] > (1 - WORTH) * seconds[GIVEN]:
        best = GIVEN
    every = [s for _, simulations, _ in found for s in simulations.values()]
    record = JudgedRivals(
        within=within, judge=every[0].scheduler, clock=next(iter(every[0].clocks)), chosen=best,
        compared=tuple(
            JudgedRival(
                name=near.name, also=near.also, objective_s=near.plan.objective_s, calibrated_s=near.calibrated_s,
                peak_bytes=near.plan.memory.peak_bytes, seconds={f: s.seconds for f, s in simulations.items()},
                refused=refused,
            )
            for near, simulations, refused in found
        ),
        left_out=rivals.left_out, notes=told,
    )  # fmt: skip
    plan = next(near.plan for near in rivals.near if near.name == best)
    plan = replace(plan, form=_form_of(forms[best]), rivals=record)
    if best != GIVEN:
        plan = replace(plan, notes=(*plan.notes, _note(record, seconds[best], seconds.get(GIVEN))))
    return Judged(plan, record, tuple(every))


def _form_of(form: ChosenForm) -> ChosenForm | None:
    """The form as the plan has it: with the seconds of all where several were judged."""
    return form if len(form.seconds) > 1 else stated(form.form)


def _note(record: JudgedRivals, mine_s: float, given_s: float | None) -> str:
    """What the plan says of itself where it is not the one that was asked for by modelled seconds."""
    given, own = record.compared[0], next(one for one in record.compared if one.name == record.chosen)
    quicker = "does not take that plan" if given_s is None else f"found it {1 - mine_s / given_s:.1%} quicker"
    return (
        f"{record.chosen}, {TOLD} {len(record.compared)} plans, and not for its modelled seconds, "
        f"which are {own.objective_s / given.objective_s - 1:+.2%} beside those of the {GIVEN}: the judge, "
        f"{record.judge}, {quicker}"
    )


def _of_config(plan: Plan) -> tuple[Mapping[str, Any] | None, Collection[str], tuple[Any, ...]]:
    """Logical axes, axes between slices, and strategies of the plan's config; nothing of the user's is imported."""
    from autoshard.config.asking import roles_of_config
    from autoshard.config.load import Config
    from autoshard.config.problem import build_problem

    if plan.config is None:
        return None, (), ()
    config = Config.from_dict(plan.config)
    roles = config.settings.logical_axes
    if config.model is not None:
        roles = roles_of_config(config, build_problem(config))
    return roles, config.slow_axes, config.baselines
