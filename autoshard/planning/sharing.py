"""What it costs at most that repeated layers share their decisions: the plan's cost less a bound without sharing."""

from dataclasses import dataclass

from autoshard.errors import OutOfTimeError
from autoshard.plan_record import SharingPrice
from autoshard.planning.decision import Decision
from autoshard.planning.model import PRICED_ENTRIES, Model, build_model
from autoshard.search_options import ACCEPTED_GAP, SearchOptions
from autoshard.solver.solution import Stopped

_EFFORT = 0.2


@dataclass(frozen=True)
class Sharing:
    """The price of sharing, and what ended its proof early: `TIME` or `INTERRUPT`; None where nothing did."""

    price: SharingPrice
    stopped: Stopped | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the plan where the proof was ended early, because another run may then give another price."""
        if self.stopped is None:
            return ()
        by = "the time limit" if self.stopped is Stopped.TIME else "the user"
        return (f"the proof of what it costs that layers are shared was ended by {by}",)


def unpriced(model: Model) -> SharingPrice:
    """How many decisions are shared, without what sharing costs."""
    whole, own = model.encoded.network.n_nodes, model.repeats.network.n_nodes
    return SharingPrice(decisions=whole, shared=whole - own, bound_s=None, price_at_most_s=None)


def price_of_sharing(
    model: Model, decision: Decision, options: SearchOptions | None = None, *, always: bool = False
) -> Sharing | None:
    """What it costs at most that repeated layers share their decisions; None where nothing is shared.

    always: prove the bound however large the network of all layers is; otherwise only up to `PRICED_ENTRIES` entries.
    The bound is proved without the memory limit, so it holds within any limit.
    """
    if not model.repeats.shared:
        return None
    if decision.interrupted:
        return Sharing(unpriced(model), Stopped.INTERRUPT)
    try:
        return _price(model, decision, options or SearchOptions(), always)
    except KeyboardInterrupt:  # the plan is finished, only its price of sharing is not
        return Sharing(unpriced(model), Stopped.INTERRUPT)


def _price(model: Model, decision: Decision, options: SearchOptions, always: bool) -> Sharing:
    told = unpriced(model)
    if model.encoded.entries > PRICED_ENTRIES:
        if not always:
            return Sharing(told)
        try:
            model = build_model(model.problem, shared=model.shared, whole=True, deadline=options.deadline)
        except OutOfTimeError:
            return Sharing(told, Stopped.TIME)
    from autoshard.formulation.assign import assignment_of
    from autoshard.solver import solve

    start = assignment_of(model.collected, model.encoded, model.repeats, decision.schedule)
    solution = solve(
        model.encoded.network, effort=_EFFORT, seed=options.seed, gap=ACCEPTED_GAP,
        deadline=options.deadline.part(1.0),
        starts=[] if start is None else [model.repeats.expand(start)],
    )  # fmt: skip
    bound = min(solution.lower_bound * model.encoded.tick_s - model.encoded.rounding_s, decision.objective_s)
    bound = max(0.0, bound)
    early = solution.stopped if solution.stopped in (Stopped.TIME, Stopped.INTERRUPT) else None
    price = {"bound_s": bound, "price_at_most_s": decision.objective_s - bound}
    return Sharing(told.model_copy(update=price), early)
