"""What a solver hands back: an assignment, a proven bound, and how they were found."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

    from autoshard.solver.certify.proof import Proof


class Stopped(StrEnum):
    """What ended a search, or where a run has its plan from (`Solution.stats["stopped"]`)."""

    DONE = "done"
    """The search ended by itself: nothing was left to do."""
    GAP = "gap"
    """The cost was as close to the bound as was asked for."""
    EFFORT = "effort"
    """The effort was spent."""
    TIME = "time"
    """The time was over."""
    INTERRUPT = "interrupt"
    """The user, or the cap on the memory of planning, stopped it."""
    UNWANTED = "unwanted"
    """What a proof found on its way is nothing to its caller: a search of another network follows."""
    COPIES = "copies"
    """The plan is an earlier one of the search; the last one holds too much when copies are counted."""
    BASELINE = "baseline"
    """The plan is one that the search started from."""
    STRATEGY = "strategy"
    """The plan is what a strategy without a proof decided."""
    SEEN = "seen"
    """The plan is the cheapest that was known when the run was stopped."""


Status = Literal["optimal", "feasible", "infeasible", "unknown"]

EARLIER = 12
"""Assignments that a solution keeps beside the best one."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The answer to one `CostNetwork`.

    assignment, cost: the best feasible assignment found and its exact cost, or None.
    lower_bound: proven; no feasible assignment costs less (0 or negative values are possible).
    status: "optimal" (cost == lower_bound), "feasible", "infeasible" (proven, see `reason`) or "unknown".
    peak: the largest usage of the assignment, or None. For an infeasible network see `reason`.
    trace: (seconds since the start, cost) of every improvement.
    earlier: the assignments that the best one took over from, the last first: at most `EARLIER` of them.
    proof: of `lower_bound`, or that there is no assignment; see `certificate`.
    standing: where messages stand, for another search of the same tables to go on from; of factored tables only.
    likely: of those, the states of every node that look best.
    stats: sizes, engines, times; `stats["stopped"]`, a `Stopped`, says what ended the run.
    """

    assignment: tuple[int, ...] | None
    cost: int | None
    lower_bound: int
    status: Status
    peak: int | None = None
    reason: str | None = None
    trace: tuple[tuple[float, int], ...] = ()
    earlier: tuple[tuple[int, ...], ...] = ()
    stats: dict[str, Any] = field(default_factory=dict)
    proof: "Proof | None" = field(default=None, compare=False)
    standing: Any = field(default=None, compare=False, repr=False)
    likely: "Sequence[np.ndarray] | None" = field(default=None, compare=False, repr=False)

    @property
    def stopped(self) -> Stopped | None:
        """What ended the run; None of a solution that no run has made."""
        return self.stats.get("stopped")

    def certificate(self) -> bytes | None:
        """The proof as bytes, for `autoshard network check` and `verify.certificate`; None where nothing is proved."""
        if self.proof is None:
            return None
        from autoshard.solver.certify.certificate import certificate_of

        bound = self.proof.beyond if self.status == "infeasible" else self.lower_bound
        return certificate_of(self.proof, bound) or None

    @property
    def gap(self) -> float | None:
        """(cost - lower_bound) / |cost|, 0.0 for a proven optimum, None without an assignment."""
        if self.cost is None:
            return None
        return max(0, self.cost - self.lower_bound) / max(1, abs(self.cost))
