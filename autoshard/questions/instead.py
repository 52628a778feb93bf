"""What another sharding of a value would cost: the plan solved again with that as a statement, and what changes.

Both answers carry bounds, so the difference does too: the other sharding costs at least its bound less what the plan
costs, whatever is done elsewhere in the program.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autoshard.constraints import MatchedPin
from autoshard.constraints.giving_way import behind_borders, displaced
from autoshard.errors import InputError, ShardingError
from autoshard.plan_record import PlanRecord
from autoshard.questions.again import Changed, solve_again, stated_pins
from autoshard.questions.carried import returned_otherwise
from autoshard.questions.diff import PlanDiff, diff_plans
from autoshard.questions.explain import addressed
from autoshard.report.amounts import bytes_text, seconds_text
from autoshard.search_options import SearchOptions
from autoshard.sharding.tensor_sharding import TensorSharding

ASKED = "--instead"
"""The source of the pin of such a question, for messages."""


@dataclass(frozen=True)
class Instead:
    """A plan beside the one in which some values have another sharding.

    values: names of the values asked about; `now`: their shardings in the plan; `asked`: the other sharding. replaced:
    statements that gave way. other: the plan with that sharding. diff: from the plan to the other one. freed: outputs
    that leave otherwise than the inputs whose next values they are come in, in the other plan alone.
    """

    values: tuple[str, ...]
    now: tuple[str, ...]
    asked: str
    replaced: tuple[str, ...]
    plan: PlanRecord
    other: PlanRecord
    diff: PlanDiff
    freed: tuple[str, ...] = ()

    @property
    def extra_s(self) -> float:
        """Seconds per step that the other plan takes more (less than 0: it is quicker)."""
        return self.other.objective_s - self.plan.objective_s

    def _in_the_way(self) -> str:
        """Why the other plan costs less."""
        if self.replaced:
            return "a statement stood in the way"
        return "carried state stood in the way" if self.freed else "the plan was not proved to be the best"

    @property
    def least_extra_s(self) -> float:
        """Proven: no plan with the other sharding takes less than this more than the plan."""
        return self.other.bound_s - self.plan.objective_s

    def to_dict(self) -> dict[str, Any]:
        """Both plans in figures and all that differs, as plain data for JSON."""

        def told(plan: PlanRecord) -> dict[str, Any]:
            return {
                "objective_s": plan.objective_s, "step_s": plan.cost.step_s, "bound_s": plan.bound_s, "gap": plan.gap,
                "status": plan.status, "peak_bytes": plan.memory.peak_bytes,
            }  # fmt: skip

        return {
            "values": list(self.values), "now": list(self.now), "instead": self.asked, "strategy": self.plan.strategy,
            "replaced": list(self.replaced), "freed": list(self.freed),
            "plan": told(self.plan), "other": told(self.other),
            "extra_s": self.extra_s, "least_extra_s": self.least_extra_s,
            "extra_share": self.extra_s / max(self.plan.objective_s, 1e-30),
            "extra_bytes": self.other.memory.peak_bytes - self.plan.memory.peak_bytes,
            "changes": self.diff.to_dict(),
        }  # fmt: skip

    def __str__(self) -> str:
        names = ", ".join(self.values[:4]) + (f" and {len(self.values) - 4} more" if len(self.values) > 4 else "")
        lines = [f"{names}: {self.asked} instead of {' / '.join(dict.fromkeys(self.now))}"]
        lines += [f"  in place of {text}" for text in self.replaced]
        if self.freed:
            lines += [f"  {note}" for note in self.other.notes if note not in self.plan.notes]
        if self.plan.strategy is not None:
            lines.append(f"  both decided by strategy {self.plan.strategy}, not by cost alone")
        if self.other.run.get("interrupted"):
            lines.append("  the search was stopped before its end: another run may find it cheaper")
        a, b, extra = self.plan.objective_s, self.other.objective_s, self.extra_s
        share = f" ({extra / a:+.2%})" if a else ""
        if abs(extra) <= self.plan.rounding_s + self.other.rounding_s:
            lines.append(f"  costs the same: {seconds_text(a)}")
        elif extra > 0:
            lines.append(f"  costs {seconds_text(extra)} more{share}: {seconds_text(a)} -> {seconds_text(b)}")
        else:
            lines.append(
                f"  costs {seconds_text(-extra)} less{share}: {seconds_text(a)} -> {seconds_text(b)}; "
                + self._in_the_way()
            )
        if self.least_extra_s > 0:
            lines.append(f"  proven: no plan with it costs less than {seconds_text(self.least_extra_s)} more")
        p, q = self.plan.memory.peak_bytes, self.other.memory.peak_bytes
        lines.append(f"  memory at the peak: {bytes_text(p)} -> {bytes_text(q)}")
        return "\n".join([*lines, *self.diff.lines()[2:]])


def pin_for(plan: PlanRecord, pattern: str, sharding: str | TensorSharding) -> MatchedPin:
    """A pin of all values and outputs that a name or pattern addresses in a plan, and of what is one with them.

    Raises `InputError` where nothing is addressed, `ShardingError` where the sharding does not fit.
    """
    values, outputs = addressed(plan, pattern)
    mesh = plan.schedule.mesh.mesh
    try:
        pin = TensorSharding.from_text(str(sharding), mesh)
    except ShardingError as error:
        raise ShardingError(f"{ASKED} {sharding}: {error}") from None
    if any(dim.priority is not None for dim in pin.dims):
        raise InputError(f"{ASKED} {sharding}: priorities order statements, and this is one alone; leave them out")
    program = plan.program
    named = [(v, program.values[v].name) for v in values]
    named += [(program.body.results[k], program.output_names[k]) for k in outputs]
    for value, name in named:
        type_ = program.type_of(value)
        if type_.rank != pin.rank:
            raise ShardingError(
                f"{ASKED} {sharding}: it has {pin.rank} dimensions, but {name} is {type_} with {type_.rank}"
            )
        faults = pin.violations(mesh, type_.shape, what=f"{name} {type_}")
        if faults:
            raise ShardingError(f"{ASKED} {sharding}: " + "; ".join(faults))
    return behind_borders(MatchedPin(pattern, pin, tuple(values), tuple(outputs), ASKED), stated_pins(plan), program)


def instead(
    plan: PlanRecord,
    pattern: str,
    sharding: str | TensorSharding,
    options: SearchOptions | None = None,
) -> Instead:
    """Solve a plan again with another sharding of what `pattern` addresses; all other statements hold.

    A statement about the same value that says otherwise gives way for this value and is told (`Instead.replaced`).
    Raises `InfeasibleError` where the new statement cannot hold beside the others or the memory limit.
    """
    pin = pin_for(plan, pattern, sharding)
    _, lost = displaced(stated_pins(plan), [pin])
    other = solve_again(plan, Changed((pin,)), options)
    names, now = _names(plan, *addressed(plan, pattern))
    before = returned_otherwise(plan.program, plan.schedule)
    return Instead(
        names, now, str(pin.sharding), tuple(pin.told for pin in lost), plan, other,
        diff_plans(plan, other),
        tuple(n for n in returned_otherwise(other.program, other.schedule) if n not in before),
    )  # fmt: skip


def _names(plan: PlanRecord, values: Sequence[int], outputs: Sequence[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of values and outputs, and their shardings in the plan."""
    names = [plan.program.values[v].name for v in values] + [plan.program.output_names[k] for k in outputs]
    return tuple(names), tuple(plan.shardings[name] for name in names)
