"""One run of ``autoshard solve``: plan, write the files, then verify and run where the config asks for it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard import __version__
from autoshard.config.load import Config
from autoshard.config.problem import build_problem, check_locals, import_reference, told_of_tracing
from autoshard.config.workload import Workload
from autoshard.constraints.kernels_of import called_names
from autoshard.errors import InfeasibleError, InputError, UnsupportedError
from autoshard.files import check_writable, write_json
from autoshard.report.progress import Progress
from autoshard.report.view.search import search_points
from autoshard.search_options import SearchOptions
from autoshard.trust import allow, placed_config, told_folder

if TYPE_CHECKING:
    from autoshard.api.plans import Plan
    from autoshard.frontends.jax.function import TracedFunction
    from autoshard.questions.compare import Comparison
    from autoshard.request.request import Request
    from autoshard.strategies.choice import StrategyName

PLAN = "plan.json"
REFUSAL = "refusal.json"
"""The file of a proof that there is no plan, in the folder where the plan would be."""
OUTPUT_ROOT = Path("out")
"""Where a config's results go unless it or the command line says otherwise: ``out/<name of the config>``."""


@dataclass(frozen=True)
class Session:
    """The results of one run.

    plan: the plan. directory: where plan.json and run.json are. verification: None where the config does not ask for
    one. losses: of the train steps that were run, in order; None where none were. seconds: wall-clock time by stage.
    """

    plan: "Plan"
    directory: Path
    verification: Any | None
    losses: tuple[float, ...] | None
    seconds: Mapping[str, float]

    @property
    def verified(self) -> bool:
        """False only where a verification found something wrong."""
        return self.verification is None or self.verification.ok

    def to_dict(self) -> dict[str, Any]:
        """The results for ``--json``: the plan without program and schedule, which are in the file."""
        data = {k: v for k, v in self.plan.to_dict().items() if k not in ("program", "schedule", "config")}
        return {
            **data,
            "shardings": dict(self.plan.shardings),
            "plan_file": str(self.directory / PLAN),
            "verification": self.verification.to_dict() if self.verification is not None else None,
            "losses": list(self.losses) if self.losses is not None else None,
            "seconds": dict(self.seconds),
        }

    def show(self, *, tables: bool = False) -> None:
        """Print the verdict on standard output, after all notes and the faults that a verification found.

        tables: also print all tables, checks and losses before the verdict.
        """
        from autoshard.report.plan_tables import print_plan, print_run
        from autoshard.report.verdict import checks_text, losses_text, verdict

        plan = self.plan.to_dict()
        if tables or plan["notes"]:
            print_plan(plan, () if tables else ("notes",))
        if self.verification is not None and (tables or not self.verified):
            print(self.verification)
        if self.losses is not None and tables:
            print_run(self.losses)
        checked = "" if self.verification is None else checks_text(self.verification.to_dict())
        ran = "" if self.losses is None else losses_text(self.losses)
        for line in verdict(plan, checked=checked, ran=ran, file=str(self.directory / PLAN)):
            print(line)


def solve_session(
    config: Config, *, time_limit_s: float | None = None, output: Path | None = None, quiet: bool = False
) -> Session:
    """Solve a config and do what it asks for afterwards. Files are written as soon as the plan exists."""
    started = datetime.now(UTC)
    clock = _Clock()
    directory = output or (Path(config.settings.output) if config.settings.output else OUTPUT_ROOT / config.name)
    verification, losses = None, None
    check_writable(directory / PLAN)
    with Progress(quiet=quiet) as progress:
        progress("reading the program")
        problem = clock.time("build", lambda: build_problem(config))
        try:
            plan = clock.time(
                "plan", lambda: plan_config(config, problem, time_limit_s=time_limit_s, progress=progress)
            )
        except InfeasibleError as error:
            raise _kept(error, config, directory, started, clock.seconds) from None
        _save(plan, directory / PLAN)
        (directory / REFUSAL).unlink(missing_ok=True)
        if config.trusted:
            allow(directory / PLAN)
        if config.settings.verify:
            progress("verifying")
            verification = clock.time("verify", lambda: verify_session(directory / PLAN))
        if config.run is not None and (verification is None or verification.ok):
            steps, seed = config.run.steps, config.run.seed
            losses = clock.time("run", lambda: train(plan, problem, steps, seed, progress))
    session = Session(plan, directory, verification, losses, clock.seconds)
    write_json(
        directory / "run.json",
        {
            **_told_run(config, directory, started, clock.seconds),
            "verification": verification.to_dict() if verification is not None else None,
            "losses": list(losses) if losses is not None else None,
            "search": [list(point) for point in search_points(plan.run)],
        },
    )
    return session


def _told_run(config: Config, directory: Path, started: datetime, seconds: Mapping[str, float]) -> dict[str, Any]:
    """What run.json says of every run."""
    return {
        "autoshard": __version__,
        "config": config.file,
        "folder": told_folder(config.directory, directory / PLAN),
        "started": started.isoformat(timespec="seconds"),
        "seconds": {stage: round(s, 3) for stage, s in seconds.items()},
    }


def _kept(
    error: InfeasibleError, config: Config, directory: Path, started: datetime, seconds: Mapping[str, float]
) -> InfeasibleError:
    """Write the refusal of a run where the plan would be; the error, which says so."""
    if error.refusal is None:
        return error
    file = directory / REFUSAL
    error.refusal.save(file)
    write_json(directory / "run.json", {**_told_run(config, directory, started, seconds), "refused": True})
    if config.trusted:
        allow(file)
    plan = directory / PLAN
    beside = f"\n{plan} is of an earlier solve, and no answer to this one" if plan.exists() else ""
    told = InfeasibleError(
        f"{error}\nkept in {file}; `autoshard verify {file}` checks it{beside}", conflict=error.conflict
    )
    told.facts, told.proof, told.refusal = error.facts, error.proof, error.refusal
    return told


def _save(plan: "Plan", file: Path) -> None:
    """Write the plan. A Ctrl-C during the write comes too late to end the search, so the plan is written all the
    same.
    """
    try:
        plan.save(file)
    except KeyboardInterrupt:
        plan.save(file)


def plan_config(
    config: Config,
    problem: Workload,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> "Plan":
    """Plan what a config describes; `problem` is the result of `build_problem`.

    time_limit_s: wall clock for tracing, building and solving together; by default the config's.
    """
    return traced_problem(config, problem, time_limit_s=time_limit_s, progress=progress).plan()


@dataclass(frozen=True)
class TracedProblem:
    """What a config describes, with its function traced. options: of the search, whose time began before tracing."""

    config: Config
    problem: Workload
    traced: "TracedFunction"
    options: SearchOptions
    traced_s: float

    def request(self, options: SearchOptions | None = None) -> "Request":
        """The request that it makes, with other options where they are given."""
        from autoshard.config.asking import request_of_config

        return request_of_config(self.config, self.problem, self.traced, options or self.options)

    def plan(self) -> "Plan":
        """The plan of it, in the time that is left."""
        from autoshard.api.verbs import plan_request

        return plan_request(self.request()).with_seconds("trace", self.traced_s)


def traced_problem(
    config: Config,
    problem: Workload,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> TracedProblem:
    """Trace what a config describes, to be planned; arguments as of `plan_config`."""
    from autoshard.planning.interrupting import TRACE_LESS, TRACING, ended_at

    options = SearchOptions(progress=progress).within(config.time_limit_s if time_limit_s is None else time_limit_s)
    check_locals(config)
    with ended_at(options.deadline, TRACING, TRACE_LESS):
        traced = trace_config(config, problem, progress)
    return TracedProblem(config, problem, traced, options, options.deadline.spent())


def trace_config(config: Config, problem: Workload, progress: Callable[[str], None] | None = None) -> "TracedFunction":
    """Trace the function of a config; `InputError` where it cannot be traced with its arguments."""
    from autoshard.frontends.jax.function import trace

    if progress is not None:
        progress("tracing")
    with told_of_tracing(config, problem.name):
        traced = trace(
            problem.function,
            *problem.specs,
            donate_argnums=problem.donate_argnums,
            argnames=problem.argnames,
            name=problem.name,
            effects=config.settings.effects,
            kernels=called_names(config.statements),
            loop_parts=config.settings.loop_parts,
        )
    if config.settings.strict and traced.program.warnings:
        raise UnsupportedError(
            "strict: true and the program has\n  "
            + "\n  ".join(traced.program.warnings)
            + "\nset strict: false to go on"
        )
    return traced


def compare_config(
    config: Config,
    strategies: "Sequence[StrategyName]",
    *,
    own: Sequence[str] = (),
    baselines: bool = True,
    time_limit_s: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> "Comparison":
    """Solve what a config describes by several strategies. own: functions of the user, ``module:function``.

    baselines: price the config's baselines too.
    """
    from autoshard.api.compare import compare_request
    from autoshard.config.asking import request_of_config

    functions = [(reference, own_strategy(reference, config.directory)) for reference in own]
    options = SearchOptions(progress=progress).within(config.time_limit_s if time_limit_s is None else time_limit_s)
    problem = build_problem(config)
    request = request_of_config(config, problem, trace_config(config, problem, progress), options)
    return compare_request(request, [*((str(s), s) for s in strategies), *functions], baselines=baselines)


def own_strategy(reference: str, folder: Path) -> Callable[..., Any]:
    """The function that ``module:function`` names, looked for in `folder` too; `InputError` where there is none."""
    try:
        if ":" not in reference:
            raise InputError("write module:function, such as mine:strategy")
        function = import_reference(reference, folder)
    except InputError as error:
        raise InputError(f"--strategy {reference}: {error}") from error.__cause__
    if not callable(function):
        raise InputError(f"--strategy {reference}: expected a function, found a {type(function).__name__}")
    return function


def verify_session(plan_file: Path) -> Any:
    """The checks of a plan file, or of a refusal, against the config in it.

    The result has ``ok``, ``to_dict()`` and a text form.
    """
    from autoshard.api.bound import check_refusal, with_bound
    from autoshard.files import read_json
    from autoshard.plan_record.refusal import RefusalRecord, is_refusal
    from autoshard.verify import verify_file, verify_refusal

    data = read_json(plan_file, what="plan")
    if is_refusal(data):
        RefusalRecord.load(plan_file)
        data = {**data, "config": placed_config(data.get("config"), plan_file)}
        verification = verify_refusal(data, name=str(plan_file))
        return replace(verification, checks=(*verification.checks, check_refusal(data)))
    return with_bound(verify_file(plan_file), read_json(plan_file, what="plan"))


def train(plan: "Plan", problem: Workload, steps: int, seed: int, progress: Callable[[str], None]) -> tuple[float, ...]:
    """Run train steps as planned, on the devices JAX has; returns the loss of each."""
    model = problem.model
    assert model is not None, "a config with 'run' names a model"
    progress("compiling the train step")
    step = plan.jit()
    state = model.init(seed)
    batches = model.batches(seed)
    losses: list[float] = []
    for number in range(steps):
        state, batch = plan.place(state, next(batches))  # arrays of one kind from the first step on, compiled for once
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
        progress(f"training: step {number + 1} of {steps}, loss {losses[-1]:.4f}")
    return tuple(losses)


class _Clock:
    """Wall-clock seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, stage: str, work: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            return work()
        finally:
            self.seconds[stage] = time.monotonic() - began
