"""What a solver hands back: an assignment, a proven bound, and how they were found."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from autoshard.solver.certify.proof import Proof

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
    stats: sizes, engines, times; `stats["stopped"]` says what ended the run: "done", "effort", "time", "interrupt".
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

    def certificate(self) -> bytes | None:
        """The proof as bytes, for `autoshard network check` and `verify.certificate`; None where nothing is proved."""
        if self.proof is None:
            return None
        from autoshard.solver.certify.certificate import certificate_of

        return certificate_of(self.proof, None if self.status == "infeasible" else self.lower_bound)

    @property
    def gap(self) -> float | None:
        """(cost - lower_bound) / |cost|, 0.0 for a proven optimum, None without an assignment."""
        if self.cost is None:
            return None
        return max(0, self.cost - self.lower_bound) / max(1, abs(self.cost))
