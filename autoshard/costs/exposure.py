"""What a plan minimises: seconds where nothing overlaps, or those for which a device waits.

serial: every collective counts in full. overlap: of each collective the share counts that does not hide behind other
work, and no step is shorter than its busiest link works: the greater of this sum and the seconds of every link. That
share depends on the kind of collective, the role of what it moves (`critical`) and the machine
(`costmodels.profile.Overlap`). The role of a value is a fact of the program, so each of them is a sum over decisions;
their greatest is not, but a weighted mean of them is, and it is never more than the greatest (`Weights`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Final, Literal, get_args

from autoshard.costmodels.machine import Machine
from autoshard.costs.critical import MatmulOrder, Role, matmul_order
from autoshard.costs.price import PlanCost
from autoshard.costs.pricing import StepPrices
from autoshard.costs.travel import PLAIN, Travel, Travels
from autoshard.program.program import Program

Weights = tuple[tuple[str, float], ...]
"""The weight of each link in a mean of what a device waits for, which has what is left of 1, and what links work."""

Objective = Literal["serial", "overlap"]
OBJECTIVES: Final[tuple[Objective, ...]] = get_args(Objective)


def other_than(objective: Objective) -> Objective:
    """The other of the two objectives."""
    return "overlap" if objective == "serial" else "serial"


def hidden_share(machine: Machine, kind: str, role: Role, behind: float = inf) -> float:
    """The share of a collective's seconds that overlaps with other work. behind: that other work over the collective
    (`Travel.behind`): a gather that takes longer than its matmuls hides less, and one that none comes after nothing.
    """
    if role is Role.ACTIVATIONS:
        return 0.0
    most = float(getattr(machine.profile.overlap, "permute" if kind == "shift" else kind, 0.0))
    return most * min(1.0, behind)


@dataclass(frozen=True)
class Exposure:
    """How much of a collective's seconds counts. order: of the program's matmuls; None where all of it counts.
    travels: of the program's values; None where whole arrays move. weights: of links, where a mean is counted.
    """

    machine: Machine
    order: MatmulOrder | None = None
    travels: Travels | None = None
    weights: Weights = ()

    @staticmethod
    def of(objective: Objective, program: Program, machine: Machine, weights: Weights = ()) -> "Exposure":
        """The shares of a program under an objective."""
        order = matmul_order(program) if objective == "overlap" else None
        return Exposure(machine, order, Travels(program, machine), weights)

    @cached_property
    def rest(self) -> float:
        """The weight of what a device waits for, work and copies included."""
        return 1.0 - sum(weight for _, weight in self.weights)

    def role(self, value: int, op: int) -> Role | None:
        """The role of a value that moves around an op (or `PROGRAM`); None where roles do not matter."""
        return None if self.order is None else self.order.role_of(value, op)

    def travel(self, value: int, op: int, as_used: bool = False) -> Travel:
        """What steps carry of a value around an op (or `PROGRAM`), and what they hide behind where that counts; see
        `Travels.of`.
        """
        travel = PLAIN if self.travels is None else self.travels.of(value, op, as_used)
        role = self.role(value, op)
        return replace(travel, work_s_per_byte=inf) if role in (None, Role.ACTIVATIONS) else travel

    def converting(self, value: int) -> frozenset[int]:
        """The ops for which a value may be gathered as they take it (`Travels.converting`)."""
        return frozenset() if self.travels is None else self.travels.converting(value)

    def share(self, kind: str, role: Role | None, behind: float = inf) -> float:
        """The share of a kind of step that counts."""
        return 1.0 if role is None else 1.0 - hidden_share(self.machine, kind, role, behind)

    def share_of(self, kind: str, value: int, op: int) -> float:
        """The share of a collective on a value around an op that counts."""
        return self.share(kind, self.role(value, op))

    def on_links(self, prices: StepPrices, kind: str, atoms: Sequence[int]) -> float:
        """Weighted seconds that links work for each byte that the price of a step is proportional to."""
        if not self.weights:
            return 0.0
        busy = prices.link_seconds(kind, atoms)
        return sum(weight * busy.get(link, 0.0) for link, weight in self.weights)

    def counted_s(
        self, prices: StepPrices, kind: str, atoms: Sequence[int], bytes_: float, seconds: float, share: float
    ) -> float:
        """What counts of one execution of a collective: a share of its seconds, and what it makes links work.

        bytes_: those that its price is proportional to.
        """
        return seconds * share * self.rest + bytes_ * self.on_links(prices, kind, atoms)

    def waited_s(self, cost: PlanCost) -> float:
        """Seconds for which a device waits: compute, copies, and the shares of collectives that count."""
        if self.order is None:
            return cost.step_s
        exposed = sum(
            r.seconds * r.times * self.share(r.kind, self.order.role(r), r.behind) for r in cost.rows if r.is_collective
        )
        return cost.compute_s + cost.local_s + exposed

    def seconds(self, cost: PlanCost, prices: StepPrices) -> float:
        """Seconds of a step as the objective counts them."""
        waited_s = self.waited_s(cost)
        return waited_s if self.order is None else max(waited_s, *link_work(cost, prices).values(), 0.0)

    def mean_s(self, cost: PlanCost, prices: StepPrices) -> float:
        """The weighted mean of what a device waits for and what links work: never more than `seconds`."""
        waited_s = self.waited_s(cost)
        if not self.weights:
            return waited_s
        busy = link_work(cost, prices)
        return self.rest * waited_s + sum(weight * busy.get(link, 0.0) for link, weight in self.weights)


def link_work(cost: PlanCost, prices: StepPrices) -> dict[str, float]:
    """Seconds of a step for which each link is busy; latencies are left out."""
    busy: dict[str, float] = {}
    for row in cost.rows:
        if row.is_collective:
            for link, per_byte in prices.link_seconds(row.kind, row.atoms).items():
                busy[link] = busy.get(link, 0.0) + per_byte * (row.bytes * row.times)
    return busy
