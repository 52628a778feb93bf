"""``autoshard simulate --rivals``: near plans of the same problem on the same clock, and the quickest of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autoshard.cli.common import json_text
from autoshard.cli.process import code_aside
from autoshard.errors import InputError

if TYPE_CHECKING:
    from autoshard.api.plans import Plan


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of the command. percent: as it was typed."""

    percent: str
    forms: tuple[str, ...]
    compiler: str
    clock: str
    trace: Path | None
    keep: Path | None
    output: Path | None
    time_limit_s: float | None


def check_together(percent: str | None, output: Path | None, time_limit: str | None, write: bool) -> None:
    """`InputError` where the options of the command do not go together, or the percentage is none."""
    if percent is None:
        if output is not None:
            raise InputError("--output writes the plan that --rivals chooses: add --rivals 5")
        if time_limit is not None:
            raise InputError("--time-limit is for the search for rivals: add --rivals 5")
        return
    share_of(percent)
    if write:
        raise InputError(
            "--write changes the form of the plan itself; with --rivals another plan may be chosen: --output FILE "
            "writes that one"
        )


def simulate_with_rivals(
    plans: Sequence[Path], wanted: Wanted, load: Callable[[Path, str], "Plan"], *, as_json: bool
) -> None:
    """Print the ranking, and write the chosen plan where that is wanted. load: a plan for a compiler."""
    from autoshard.api.rivals import simulate_rivals
    from autoshard.files import check_writable, write_text
    from autoshard.report.progress import Progress
    from autoshard.report.rivals import rival_lines
    from autoshard.report.simulations import detail_lines
    from autoshard.simulation.trace import trace_events

    within = share_of(wanted.percent)
    if len(plans) != 1:
        raise InputError("--rivals is about one plan; to rank plans that you have, give their files without it")
    (file,) = plans
    if wanted.output is not None:
        check_writable(wanted.output, plans)

    def keep(name: str, form: str, text: str) -> None:
        assert wanted.keep is not None
        wanted.keep.mkdir(parents=True, exist_ok=True)
        plain = name.replace("/", "_").replace(" ", "_")
        write_text(wanted.keep / f"{plain}.{form}.hlo", text)

    with Progress(quiet=as_json) as progress, code_aside(as_json):
        progress("reading the plan")
        judged = simulate_rivals(
            load(file, wanted.compiler), within, forms=wanted.forms, compiler=wanted.compiler, clock=wanted.clock,
            time_limit=wanted.time_limit_s, progress=progress, keep=None if wanted.keep is None else keep,
        )  # fmt: skip
    if wanted.trace is not None:
        write_text(wanted.trace, json_text(trace_events(list(judged.simulations)), indent=None))
    if wanted.output is not None:
        _write(judged.plan, wanted.output, file)
    if as_json:
        print(json_text(judged.to_dict()))
        return
    print("\n".join(detail_lines([s.to_dict() for s in judged.simulations])))
    if wanted.trace is not None:
        print(f"trace: {wanted.trace} (open it at https://ui.perfetto.dev)")
    told = "" if wanted.output is None else str(wanted.output)
    print("\n".join(rival_lines(judged.record.to_dict(), judged.plan.runs_as, told)))


def _write(plan: "Plan", output: Path, given: Path) -> None:
    """Write the chosen plan, which finds its config as the given one does; where that is trusted, it is too."""
    from autoshard import __version__
    from autoshard.files import write_json
    from autoshard.trust import allow, folder_of, is_allowed, told_folder

    output.parent.mkdir(parents=True, exist_ok=True)
    folder, beside = folder_of(given), output.parent / "run.json"
    if folder is not None and folder_of(output) is None and not beside.exists():
        write_json(beside, {"autoshard": __version__, "folder": told_folder(folder, output)})
    plan.save(output)
    if is_allowed(given):
        allow(output)


def share_of(percent: str) -> float:
    """``5`` or ``5%`` as 0.05; `InputError` for what is no percentage above 0 and up to 100.

    >>> share_of("5"), share_of("2.5%")
    (0.05, 0.025)
    """
    try:
        share = float(percent.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(f"--rivals: give a percentage above 0 and up to 100, such as 5; found {percent!r}")
    return share
