"""``autoshard simulate``: plans on a clock, as the machine's own compiler schedules them."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoshard.cli.common import TrustOption, json_text, limit_option, reports_errors
from autoshard.cli.process import code_aside
from autoshard.cli.rivals import Wanted, check_together, simulate_with_rivals
from autoshard.errors import InputError
from autoshard.trust import allow

if TYPE_CHECKING:
    from autoshard.api.plans import Plan
    from autoshard.plan_record import ChosenForm
    from autoshard.simulation.result import Simulation


@reports_errors
def simulate(
    plans: Annotated[
        list[Path], typer.Argument(help="One plan.json written by solve, or several to rank.", show_default=False)
    ],
    form: Annotated[
        str,
        typer.Option(
            help="How plans are handed to the compiler: explicit (collectives written out), constraints, shardings; "
            "several with commas, or all; auto compares the first two and says which is quicker."
        ),
    ] = "explicit",
    compiler: Annotated[
        str,
        typer.Option(
            help="tpu (libtpu) and gpu (XLA for NVIDIA GPUs), ahead of time: neither chip is needed; own (autoshard's "
            "scheduler); auto."
        ),
    ] = "auto",
    clock: Annotated[
        str,
        typer.Option(help="Of compiled work: expected, cycles (the compiler's own figures, high), roofline (low)."),
    ] = "expected",
    trace: Annotated[Path | None, typer.Option(help="Write the timelines as a trace for ui.perfetto.dev.")] = None,
    keep: Annotated[Path | None, typer.Option(help="A folder for the compiled texts.")] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="With --form auto or all: have the plan run in the quickest one from now on."),
    ] = False,
    rivals: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Simulate other plans of the same problem too, those modelled at most so many percent slower; the "
            "quickest one is named.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="With --rivals: write the plan that is chosen to this file.")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="With --rivals: wall-clock limit of the search for them, such as 60 or 10min.")
    ] = None,
    trust: TrustOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Compile plans for their machine, and say how long a step takes on its schedule and what is waited for.

    The machine is described, not there. With no compiler for it, our own scheduler orders the plan, and says so.
    """
    from autoshard.simulation.ahead import prepare

    prepare()
    from autoshard.api.forms import JUDGED, by_one_judge
    from autoshard.api.simulate import simulate
    from autoshard.files import check_writable, write_text
    from autoshard.plan_record import PLACED_FORMS, RUN_FORMS
    from autoshard.report.simulations import form_text, simulation_lines
    from autoshard.running.group import existing_plan
    from autoshard.simulation.trace import trace_events

    check_together(rivals, output, time_limit, write)
    if write and form not in JUDGED:
        raise InputError("--write keeps the form that --form auto or --form all chooses: add one of them")
    auto = form == "auto" or write
    forms = list(JUDGED.get(form, ())) or [part.strip() for part in form.split(",")]
    for one in forms:
        if one not in RUN_FORMS:
            raise InputError(f"--form: no form {one!r}; there are {', '.join(RUN_FORMS)}, all and auto")
    if compiler == "own" and not set(forms) <= set(PLACED_FORMS):
        raise InputError(f"--compiler own knows the forms {' and '.join(PLACED_FORMS)}")
    for file in plans:
        existing_plan(file)
        if trust:
            allow(file)
    if trace is not None:
        check_writable(trace, plans)
    if keep is not None and keep.exists() and not keep.is_dir():
        raise InputError(f"--keep: {keep} is a file; name a folder")
    if rivals is not None:
        wanted = Wanted(rivals, tuple(forms), compiler, clock, trace, keep, output, limit_option(time_limit))
        simulate_with_rivals(plans, wanted, _loaded, as_json=as_json)
        return

    titles = _titles(plans)
    simulations, chosen = [], []
    with code_aside(as_json):
        for file, title in zip(plans, titles, strict=True):
            plan = _loaded(file, compiler)

            def run(one: str, by: str, plan: "Plan" = plan, title: str = title) -> "Simulation":
                place = None if keep is None else keep / f"{title.replace('/', '_')}.{one}.hlo"
                hand = None if place is None else partial(_keep, place)
                return simulate(plan, form=one, compiler=by, clock=clock, name=title, keep=hand)

            if auto:
                found, form_of_plan = by_one_judge(plan, run, compiler, form)
                simulations += found
                chosen.append(form_of_plan)
                if write:
                    _written(file, form_of_plan)
            else:
                simulations += [run(one, compiler) for one in forms]
    if trace is not None:
        write_text(trace, json_text(trace_events(simulations), indent=None))
    if as_json:
        rows = [s.to_dict() for s in simulations]
        forms_of = {title: one.to_dict() for title, one in zip(titles, chosen, strict=False)}
        print(json_text({"simulations": rows, "forms": forms_of} if auto else rows))
    else:
        print("\n".join(simulation_lines([s.to_dict() for s in simulations])))
        for title, one in zip(titles, chosen, strict=False):
            print(f"form of {title}: {form_text(one.to_dict())}{', written into the plan' if write else ''}")
        if trace is not None:
            print(f"trace: {trace} (open it at https://ui.perfetto.dev)")


def _written(file: Path, form: "ChosenForm") -> None:
    """Have the plan in this file run in a form; where its code might be run before, it may be after."""
    from autoshard.plan_record import PlanRecord
    from autoshard.trust import is_allowed

    known = is_allowed(file)
    PlanRecord.load(file).run_as(form).save(file)
    if known:
        allow(file)


def _keep(place: Path, text: str) -> None:
    """Write a compiled text, in a folder that is made if need be."""
    from autoshard.files import write_text

    place.parent.mkdir(parents=True, exist_ok=True)
    write_text(place, text)


def _titles(plans: list[Path]) -> list[str]:
    """File names without ``.json``, of ``plan.json`` the folder's name; whole paths where these are the same."""
    short = [(p.resolve().parent.name if p.name == "plan.json" else p.name).removesuffix(".json") for p in plans]
    return short if len(set(short)) == len(short) else [str(p) for p in plans]


def _loaded(file: Path, compiler: str) -> "Plan":
    """The plan; with its function where it is to be compiled."""
    from autoshard.api.plans import Plan
    from autoshard.simulation.ahead import judge_of

    plan = Plan.load(file)
    if judge_of(plan.machine, compiler)[0] is None:
        return plan
    from autoshard.running.program import load

    return load(str(file))[0]
