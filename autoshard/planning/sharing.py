"""What it costs at most that repeated layers share their decisions: the plan beside a bound for layers on their own."""

from dataclasses import dataclass
from typing import Any

from autoshard.planning.decision import Decision
from autoshard.planning.model import PRICED_ENTRIES, Model, build_model
from autoshard.planning.options import ACCEPTED_GAP, SearchOptions
from autoshard.solver.network import CostNetwork
from autoshard.solver.solution import Stopped

_EFFORT = 0.2


@dataclass(frozen=True)
class Sharing:
    """decisions: how many there are, shared: how many of them are taken over from another layer. bound_s: no plan in
    which layers differ costs less; None where that was not worked out. price_s: what sharing costs at most.
    """

    decisions: int
    shared: int
    bound_s: float | None
    price_s: float | None
    stopped: Stopped | None = None
    """What ended the proof before its time: `TIME` or `INTERRUPT`; None where nothing did."""

    @property
    def notes(self) -> tuple[str, ...]:
        """For the plan: another run may tell another figure."""
        if not self.stopped:
            return ()
        by = "the time limit" if self.stopped is Stopped.TIME else "the user"
        return (f"the proof of what it costs that layers are shared was ended by {by}",)

    def to_dict(self) -> dict[str, Any]:
        """As ``sharing`` in plan.json."""
        return {
            "decisions": self.decisions, "shared": self.shared, "bound_s": self.bound_s,
            "price_at_most_s": self.price_s,
        }  # fmt: skip


def price_of_sharing(
    model: Model, decision: Decision, options: SearchOptions | None = None, *, always: bool = False
) -> Sharing | None:
    """None where nothing is shared. always: prove the bound however large the network of all layers is (else of up to
    `PRICED_ENTRIES`).

    The bound does not know the memory limit, so it holds within any.
    """
    if not model.repeats.shared:
        return None
    whole = model.encoded.network
    shared = whole.n_nodes - model.repeats.network.n_nodes
    if decision.interrupted:
        return Sharing(whole.n_nodes, shared, None, None, Stopped.INTERRUPT)
    try:
        return _price(model, decision, options or SearchOptions(), whole, always)
    except KeyboardInterrupt:  # the plan is there; this is only about it
        return Sharing(whole.n_nodes, shared, None, None, Stopped.INTERRUPT)


def _price(model: Model, decision: Decision, options: SearchOptions, whole: CostNetwork, always: bool) -> Sharing:
    shared = whole.n_nodes - model.repeats.network.n_nodes
    if model.encoded.entries > PRICED_ENTRIES:
        if not always:
            return Sharing(whole.n_nodes, shared, None, None)
        model = build_model(model.problem, shared=model.shared, whole=True)
        whole = model.encoded.network
    from autoshard.formulation.assign import assignment_of
    from autoshard.solver import solve

    start = assignment_of(model.collected, model.encoded, model.repeats, decision.schedule)
    solution = solve(
        whole, effort=_EFFORT, seed=options.seed, gap=ACCEPTED_GAP, time_limit_s=options.deadline.left(),
        starts=[] if start is None else [model.repeats.expand(start)],
    )  # fmt: skip
    bound = min(solution.lower_bound * model.encoded.tick_s - model.encoded.rounding_s, decision.objective_s)
    bound = max(0.0, bound)
    early = solution.stopped if solution.stopped in (Stopped.TIME, Stopped.INTERRUPT) else None
    return Sharing(whole.n_nodes, shared, bound, decision.objective_s - bound, early)
