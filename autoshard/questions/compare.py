"""Strategies side by side on one program: cost, regret against the proven bound, peak memory, seconds.

Every strategy solves the same network under the same statements. The bound is proved once, by the joint search, and
holds for all.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autoshard import interrupts
from autoshard.costs.price import price
from autoshard.deadline import Deadline
from autoshard.errors import InfeasibleError, NotFoundError, OutOfTimeError
from autoshard.planning import Decision, Model
from autoshard.search.baselines import Baseline, price_baselines
from autoshard.search.restricted import CannotBe
from autoshard.search.strategy import BOUND_EFFORT, bound_of, decide_by, start_of
from autoshard.search_options import SearchOptions
from autoshard.solver.network import evaluate
from autoshard.solver.solution import Stopped
from autoshard.strategies.choice import NAMES, SEARCHES, StrategyName
from autoshard.strategies.stated import StatedShardings

if TYPE_CHECKING:
    import pandas as pd

    from autoshard.strategies.named import Roles

QUICK_SHARE = 0.4
"""The part of a time limit that all strategies without a proof may take together."""
BASELINE_SHARE = 0.15
"""The part of what is left that one baseline may take."""
LEAST_S = 0.5
"""Seconds that a search gets at least."""

CANNOT_BE, NONE_FOUND = "cannot be", "none found"
"""Status of a strategy without a plan: it is proved that it has none, or none was found."""

COLUMNS = ("strategy", "kind", "objective_s", "regret", "peak_bytes", "seconds", "status", "reason")


@dataclass(frozen=True, slots=True)
class Row:
    """How one strategy or baseline did.

    kind: ``strategy``, ``own`` (a function of the user) or ``baseline``. objective_s: seconds of one step, the minute
    price on memory included; None where there is no plan (`reason`; its status is `CANNOT_BE` where the strategy has
    none, proved, else `NONE_FOUND` or ``out of time``). regret: objective_s over the proven bound, less 1. seconds:
    wall clock of the search, without building the network (they differ from run to run).
    """

    strategy: str
    kind: str
    objective_s: float | None
    regret: float | None
    peak_bytes: int | None
    seconds: float
    status: str
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data, by the names of `COLUMNS`."""
        return {name: getattr(self, name) for name in COLUMNS}


@dataclass(frozen=True)
class Comparison:
    """All rows, in the order asked for, beside the bound that no plan under the statements is below."""

    program: str
    mesh: Mapping[str, int]
    hardware: str
    memory_limit: int | None
    bound_s: float
    rows: tuple[Row, ...]
    device_limit: bool = False
    """No limit is stated: `memory_limit` is what the device has room for."""

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data, for JSON."""
        return {
            "program": self.program, "mesh": dict(self.mesh), "hardware": self.hardware,
            "memory_limit": self.memory_limit, "device_limit": self.device_limit, "bound_s": self.bound_s,
            "strategies": [row.to_dict() for row in self.rows],
        }  # fmt: skip

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a table."""
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in self.rows], columns=list(COLUMNS))

    def csv(self) -> str:
        """The rows as comma-separated values, with a header."""
        return self.to_pandas().to_csv(index=False, lineterminator="\n")


class _Run:
    """What the rows of one comparison share: the model, the clock, and the starts found so far; Ctrl-C ends it."""

    def __init__(self, model: Model, options: SearchOptions, ctrl_c: interrupts.Noticed) -> None:
        self.model, self.options, self.ctrl_c = model, options, ctrl_c
        self.clock = Deadline()
        self.starts: list[Sequence[int]] = []
        self.best_s = math.inf

    def begin(self, what: str) -> None:
        """Say what is searched for next, and start its clock."""
        self.options.say(what)
        self.clock = Deadline()

    def row(
        self,
        name: str,
        status: str,
        objective_s: float | None = None,
        peak_bytes: int | None = None,
        reason: str = "",
        kind: str = "strategy",
    ) -> Row:
        """A row without its regret, which is known when all rows are."""
        self.ctrl_c.check()  # half a comparison is none
        if objective_s is not None:
            self.best_s = min(self.best_s, objective_s)
        seconds = round(self.clock.spent(), 3)
        return Row(name, kind, objective_s, None, peak_bytes, seconds, status, reason)

    def quick(self, strategy: StrategyName, share: float) -> Row:
        """The row of a strategy that proves nothing, within a `share` of the time that is left."""
        self.begin(f"strategy {strategy}")
        model = self.model
        try:
            start = start_of(model, strategy, self.options.deadline.part(share, least=LEAST_S))
        except CannotBe as error:
            return self.row(str(strategy), CANNOT_BE if error.exhausted else NONE_FOUND, reason=str(error))
        self.starts.append(start.assignment)
        # priced from its schedule, as a plan is
        cost = price(model.problem.program, start.schedule, model.fusion, model.prices, model.problem.trips)
        seconds = model.seconds(cost) + model.memory_price_s(start.assignment)
        status = "stopped by the time limit" if start.timed_out else "found"
        return self.row(str(strategy), status, seconds, start.memory.peak_bytes)

    def baseline(self, baseline: Baseline, roles: "Roles | None", slow: Collection[str], kind: str = "baseline") -> Row:
        """The row of a baseline, or of a strategy of one's own, priced on the network of all strategies."""
        self.begin("a baseline" if kind == "baseline" else "a strategy of your own")
        (priced,) = price_baselines(
            self.model, [baseline], roles, slow=slow, options=self.options.part(BASELINE_SHARE, least=LEAST_S)
        )
        cost = priced.cost
        if priced.assignment is None:
            status = CANNOT_BE if priced.exhausted else NONE_FOUND
            return self.row(cost.name, status, reason=cost.reason, kind=kind)
        self.starts.append(priced.assignment)
        return self.row(cost.name, "found", cost.objective_s, cost.peak_bytes, kind=kind)

    def searched(self, strategy: StrategyName, share: float) -> tuple[Row, Decision | None]:
        """The row of a strategy that decides by cost, started from all plans found so far, and its decision if any."""
        self.begin(f"strategy {strategy}")
        try:
            decision = decide_by(self.model, strategy, self.options.part(share, least=LEAST_S), starts=self.starts)
        except NotFoundError as error:
            return self.row(str(strategy), NONE_FOUND, reason=str(error)), None
        except OutOfTimeError as error:
            return self.row(str(strategy), "out of time", reason=str(error)), None
        except InfeasibleError as error:
            return self.row(str(strategy), CANNOT_BE, reason=str(error)), None
        if decision.interrupted:  # half a comparison is none
            raise KeyboardInterrupt
        return self.row(str(strategy), decision.status, decision.objective_s, decision.memory.peak_bytes), decision

    def bound(self) -> float:
        """Seconds that no plan costs less than, where no joint search has proved a bound."""
        model = self.model
        if not self.starts:
            return 0.0
        network = model.with_limit(None)
        best = min(self.starts, key=lambda start: evaluate(network, start).cost or math.inf)
        proof = bound_of(model, best, self.options.but(effort=self.options.effort / BOUND_EFFORT))
        if proof.stopped is Stopped.INTERRUPT:
            raise KeyboardInterrupt
        return max(0.0, proof.lower_bound * model.encoded.tick_s - model.encoded.rounding_s)


def compare_strategies(
    model: Model,
    strategies: Sequence[StrategyName | str] = NAMES,
    *,
    own: Sequence[StatedShardings] = (),
    baselines: Sequence[Baseline] = (),
    roles: "Roles | None" = None,
    slow: Collection[str] = (),
    options: SearchOptions | None = None,
) -> Comparison:
    """Solve a model by every strategy; what those without a proof find are starts of those with one.

    own: what strategies of the user state; what they leave open follows by propagation, as in baselines. The deadline
    is for all together. Raises `InputError` for unknown strategies.
    """
    parsed = [s if isinstance(s, StrategyName) else StrategyName.parse(s) for s in strategies]
    with interrupts.noticed() as ctrl_c:
        run = _Run(model, options or SearchOptions(), ctrl_c)
        rows, told, bound_s = _all_rows(run, parsed, own, baselines, roles, slow)
    ctrl_c.check()
    problem = model.problem
    mesh = problem.mesh.mesh
    return Comparison(
        problem.program.name, dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True)), problem.machine.profile.name,
        problem.memory_limit, bound_s, tuple(_with_regret(row, bound_s) for row in (*(rows[s] for s in parsed), *told)),
        problem.device_limit,
    )  # fmt: skip


def _all_rows(
    run: _Run,
    parsed: Sequence[StrategyName],
    own: Sequence[StatedShardings],
    baselines: Sequence[Baseline],
    roles: "Roles | None",
    slow: Collection[str],
) -> tuple[dict[StrategyName, Row], list[Row], float]:
    """The rows of strategies, those of own ones and baselines, and the bound in seconds."""
    rows: dict[StrategyName, Row] = {}
    quick = [s for s in parsed if s.name not in SEARCHES]
    for number, strategy in enumerate(quick):
        rows[strategy] = run.quick(strategy, QUICK_SHARE / (len(quick) - number))
    told = [run.baseline(stated, roles, slow, "own") for stated in own]
    told += [run.baseline(baseline, roles, slow) for baseline in baselines]
    bound_s = 0.0
    searched = [s for s in parsed if s.name in SEARCHES]
    for number, strategy in enumerate(searched):
        rows[strategy], decision = run.searched(strategy, 1 / (len(searched) - number))
        if (
            decision is not None and strategy.name == "joint"
        ):  # the bound of staged holds only for plans with its stages
            bound_s = decision.bound_s
    return rows, told, min(bound_s or run.bound(), run.best_s)


def _with_regret(row: Row, bound_s: float) -> Row:
    if row.objective_s is None or not bound_s:
        return row
    return replace(row, regret=row.objective_s / bound_s - 1)
