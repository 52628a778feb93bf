"""What a plan costs under the other objective, and what that one would have chosen.

The price of this plan under both objectives is in every plan. The optimum of the other one is searched only when asked:
the same program, statements, limits and strategy, with the other objective, starting from this plan.
"""

from dataclasses import dataclass
from typing import Any

from autoshard.costs.exposure import Objective, other_than
from autoshard.costs.steptime import step_time
from autoshard.plan_record import PlanRecord
from autoshard.planning import build_model
from autoshard.questions.again import decide_again, options_of, problem_of
from autoshard.search_options import SearchOptions


@dataclass(frozen=True, slots=True)
class OtherOptimum:
    """The plan that the other objective chooses: its seconds under both, and what is proved about it.

    differs: how many of the decisions that both plans state (shardings of values) are not the same.
    """

    status: str
    gap: float
    serial_s: float
    overlap_s: float
    peak_bytes: int
    differs: int


@dataclass(frozen=True, slots=True)
class Objectives:
    """A plan under both objectives. other: the optimum of the one that it does not minimise, where it was searched."""

    objective: Objective
    serial_s: float
    overlap_s: float
    other: OtherOptimum | None = None

    @property
    def loses_s(self) -> float | None:
        """Seconds that this plan takes longer than the other optimum, as the other objective counts them."""
        if self.other is None:
            return None
        return (
            self.overlap_s - self.other.overlap_s if self.objective == "serial" else self.serial_s - self.other.serial_s
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data, for JSON."""
        both = {"objective": self.objective, "serial_s": self.serial_s, "overlap_s": self.overlap_s}
        if self.other is None:
            return {**both, "other": None}
        other = {name: getattr(self.other, name) for name in OtherOptimum.__dataclass_fields__}
        return {**both, "other": {"objective": other_than(self.objective), **other, "loses_s": self.loses_s}}


def price_objectives(plan: PlanRecord, *, search: bool = False, options: SearchOptions | None = None) -> Objectives:
    """Seconds of a plan under both objectives; with `search` also the optimum of the one that it does not minimise.

    options: of the search; where not given, those that the plan was made with. Raises as planning does where no plan
    is found.
    """
    own = Objectives(plan.objective, plan.cost.step_s, plan.step_time.overlap_s)
    if not search:
        return own
    options = options or options_of(plan)
    model = build_model(problem_of(plan).minimising(other_than(plan.objective)), options.progress)
    found = decide_again(plan, model, options, explain=False)
    if found.interrupted:  # what half a search has is no optimum
        raise KeyboardInterrupt
    times = step_time(plan.program, found.schedule, plan.machine, found.cost, model.fusion, trips=plan.trips)
    before, after = plan.schedule, found.schedule
    differs = sum(
        before.form_before_use(v) != after.form_before_use(v)
        for v in before.definitions.keys() & after.definitions.keys()
    )
    other = OtherOptimum(
        found.status, found.gap, found.cost.step_s, times.overlap_s, found.memory.peak_bytes, differs
    )  # fmt: skip
    return Objectives(own.objective, own.serial_s, own.overlap_s, other)
