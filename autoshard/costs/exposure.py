"""What a plan minimises: seconds where nothing overlaps, or those for which a device waits.

serial: every collective counts in full. overlap: of each collective the share counts that does not hide behind other
work. That share depends on the kind of collective, the role of what it moves (`critical`) and the machine
(`costmodels.profile.Overlap`). The role of a value is a fact of the program, so both are sums over decisions.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Final, Literal, get_args

from autoshard.costmodels.machine import Machine
from autoshard.costs.critical import MatmulOrder, Role, matmul_order
from autoshard.costs.price import PlanCost
from autoshard.costs.travel import PLAIN, Travel, Travels
from autoshard.program.program import Program

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
    travels: of the program's values; None where whole arrays move.
    """

    machine: Machine
    order: MatmulOrder | None = None
    travels: Travels | None = None

    @staticmethod
    def of(objective: Objective, program: Program, machine: Machine) -> "Exposure":
        """The shares of a program under an objective."""
        order = matmul_order(program) if objective == "overlap" else None
        return Exposure(machine, order, Travels(program, machine))

    def role(self, value: int, op: int) -> Role | None:
        """The role of a value that moves around an op (or `PROGRAM`); None where roles do not matter."""
        return None if self.order is None else self.order.role_of(value, op)

    def travel(self, value: int, op: int) -> Travel:
        """What steps carry of a value around an op (or `PROGRAM`), and what they hide behind where that counts."""
        travel = PLAIN if self.travels is None else self.travels.of(value, op)
        role = self.role(value, op)
        return replace(travel, work_s_per_byte=inf) if role in (None, Role.ACTIVATIONS) else travel

    def share(self, kind: str, role: Role | None, behind: float = inf) -> float:
        """The share of a kind of step that counts."""
        return 1.0 if role is None else 1.0 - hidden_share(self.machine, kind, role, behind)

    def share_of(self, kind: str, value: int, op: int) -> float:
        """The share of a collective on a value around an op that counts."""
        return self.share(kind, self.role(value, op))

    def seconds(self, cost: PlanCost) -> float:
        """Seconds of a step that count: compute, copies, and the shares of collectives."""
        if self.order is None:
            return cost.step_s
        exposed = sum(
            r.seconds * r.times * self.share(r.kind, self.order.role(r), r.behind) for r in cost.rows if r.is_collective
        )
        return cost.compute_s + cost.local_s + exposed
