"""Objective *overlap*: a step takes as long as a device waits, and no shorter than its busiest link works.

The greater of such sums is not a sum over decisions, so no network says it. A weighted mean of them is a sum, and never
more than the greatest: what is proved of the mean holds for the objective, and its optima are good plans. So the search
begins with what devices wait for. Where a link then works for longer, the weights of links are those for which the
plans seen so far leave the highest bound possible (cutting planes: a linear program in the weights), and the mean is
searched with them; again, while the bound can still rise. The answer is the plan of the least objective, with the
highest bound; a gap may stay between both however long the search is, as no plan needs to be as good as a mean of two.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autoshard.costs.exposure import Weights, link_work
from autoshard.costs.price import PlanCost
from autoshard.errors import OutOfTimeError
from autoshard.formulation.assign import assignment_of
from autoshard.planning.decide import search_plan
from autoshard.planning.decision import STOPPED_BY_TIME, STOPPED_BY_USER, Decision, best_start, finish
from autoshard.planning.model import Model, build_model
from autoshard.planning.no_plan import NoAnswerError
from autoshard.search_options import SearchOptions
from autoshard.solver.solution import Stopped
from autoshard.units import seconds_text

_FIRST_SHARE = 0.6
"""The part of a time limit for what devices wait for alone."""
_MOST_MEANS = 8
"""Most searches of means."""
_RISES = 1e-3
"""The search ends where the bound can rise by no more than this part of it."""
_MOST_WEIGHT = 0.9999
"""Most weight of all links together: what devices wait for always counts, so that plans waste no work."""


def search_over_links(
    model: Model, options: SearchOptions | None = None, *, starts: Sequence[Sequence[int]] = ()
) -> Decision:
    """`search_plan`, and under objective *overlap* also over weights of links. Raises as it does."""
    options = options or SearchOptions()
    if model.problem.objective != "overlap":
        return search_plan(model, options, starts=starts)
    try:
        first = search_plan(model, options.part(_FIRST_SHARE), starts=starts)
    except NoAnswerError as end:
        if end.proved or end.stopped is not Stopped.TIME:
            raise
        first = search_plan(model, options, starts=starts)  # a plan at all comes first
    return _Means(model, options, first, starts).decision()


def decide_over_links(
    model: Model, options: SearchOptions | None = None, *, starts: Sequence[Sequence[int]] = ()
) -> Decision:
    """`search_over_links`, with errors for people as `decide` has them."""
    try:
        return search_over_links(model, options, starts=starts)
    except NoAnswerError as end:
        raise end.plain() from None


def weighing(model: Model, weights: Weights) -> Model:
    """The model with a weighted mean as what its network counts, in ticks of the same length: by what the mean counts
    of its cheapest choices they would be too short for what links work.
    """
    return build_model(
        model.problem.weighing(weights), fixed=model.fixed, shared=model.shared.weighing(weights),
        tick_s=model.encoded.tick_s,
    )  # fmt: skip


def _ended_by_time(one: Decision) -> bool:
    """Whether the time limit, or the part of it that it had, ended one of the searches of a decision."""
    return any(r.get("stopped") is Stopped.TIME for r in one.stats.get("rounds", ()))


class _Means:
    """The search over weights. found: the plans so far, with what devices wait for and what each link works."""

    def __init__(self, model: Model, options: SearchOptions, first: Decision, starts: Sequence[Sequence[int]]) -> None:
        self.model, self.options, self.starts = model, options, starts
        self.found = [first]
        self.stopped: Stopped | None = None

    def decision(self) -> Decision:
        """The cheapest plan of all searches with the highest bound."""
        first = self.found[0]
        try:
            if not first.interrupted and not self._links_decide(first) and _ended_by_time(first):
                self.found.insert(0, self._again(first))  # the rest of the time is left
            of_links, interrupted = any(map(self._links_decide, self.found)), any(one.interrupted for one in self.found)
            if of_links or interrupted:
                self.found.extend(self._given())
            if of_links and not interrupted:
                self._search()
        except KeyboardInterrupt:
            self.stopped = Stopped.INTERRUPT
        except (NoAnswerError, OutOfTimeError):  # the time ended it: what is found stands
            self.stopped = Stopped.TIME
        return first if len(self.found) == 1 and self.stopped is None else self._best()

    def _search(self) -> None:
        """Search means, while the bound can still rise."""
        for _ in range(_MOST_MEANS):
            weights, most = self._weights()
            known = any(one.proved is not None and one.proved.weights == weights for one in self.found)
            if known or self._is_close(most) or self.options.deadline.passed:
                return
            self.found.append(self._of(weights))
            if self.found[-1].interrupted:
                return

    def _links_decide(self, one: Decision) -> bool:
        """Whether a link works for longer than a device waits."""
        return self.model.seconds(one.cost) > self.model.shared.exposure.waited_s(one.cost)

    @property
    def _cheapest(self) -> Decision:
        return min(self.found, key=lambda one: one.objective_s)

    def _again(self, first: Decision) -> Decision:
        """The search for what devices wait for, with all the time that is left."""
        start = assignment_of(self.model.collected, self.model.encoded, self.model.repeats, first.schedule)
        return search_plan(self.model, self.options, starts=[*self.starts, *([] if start is None else [start])])

    def _given(self) -> Iterator[Decision]:
        """The starts that are within the limit, as decisions of which nothing is proved."""
        for start in self.starts:
            known = best_start(self.model, [start], self.model.problem.memory_limit)
            if known is not None:
                yield finish(self.model, replace(known[0], stats={"stopped": Stopped.SEEN}), *known[1:], 0, [])

    def _is_close(self, most: float) -> bool:
        """Whether the bound is as high as it gets, or a plan is within the accepted gap of it."""
        bound = max(one.bound_s for one in self.found)
        best = self._cheapest
        close = best.objective_s - bound <= max(2 * best.rounding_s, self.options.accepted_gap * best.objective_s)
        return close or most - bound <= _RISES * bound

    def _weights(self) -> tuple[Weights, float]:
        """The weights for which the plans seen leave the highest bound, and this bound, in seconds."""
        from scipy.optimize import linprog

        busy = [link_work(one.cost, self.model.prices) for one in self.found]
        waited = [self.model.shared.exposure.waited_s(one.cost) for one in self.found]
        extra = [one.memory_price_s for one in self.found]
        links = sorted(set().union(*busy))
        scale = self._cheapest.objective_s
        # maximise t, t <= waited + sum of weight * (work of the link - waited) for every plan
        rows = [[1.0, *((w - b.get(link, 0.0)) / scale for link in links)] for w, b in zip(waited, busy, strict=True)]
        rows.append([0.0, *(1.0 for _ in links)])
        sides = [*((w + e) / scale for w, e in zip(waited, extra, strict=True)), _MOST_WEIGHT]
        bounds: Any = [(None, None), *((0.0, 1.0) for _ in links)]
        found = linprog([-1.0, *(0.0 for _ in links)], A_ub=np.array(rows), b_ub=np.array(sides), bounds=bounds)
        shares = [round(float(x), 6) for x in found.x[1:]]
        return tuple((link, x) for link, x in zip(links, shares, strict=True) if x > 0), -float(found.fun) * scale

    def _of(self, weights: Weights) -> Decision:
        """The optimum of a mean."""
        told = ", ".join(f"{100 * weight:.0f}% {link}" for link, weight in weights)
        self.options.say(f"counting what links work: {told}")
        model = weighing(self.model, weights)
        near = [
            assignment_of(model.collected, model.encoded, model.repeats, one.schedule)
            for one in sorted(self.found, key=lambda one: one.objective_s)
        ]
        found = search_plan(model, self.options, starts=[start for start in near if start is not None])
        if found.proved is None:
            return found
        return replace(found, proved=replace(found.proved, weights=weights))

    def _best(self) -> Decision:
        best = self._cheapest
        proof = max(self.found, key=lambda one: one.bound_s)
        bound_s = min(proof.bound_s, best.objective_s)
        rounds: list[dict[str, Any]] = [r for one in self.found for r in one.stats.get("rounds", ())]
        notes = list(best.notes)
        if self.options.deadline.passed and STOPPED_BY_TIME not in notes:
            notes.append(STOPPED_BY_TIME)
        if self.stopped is Stopped.INTERRUPT or any(one.interrupted for one in self.found):
            rounds.append({"what": "counting what links work", "stopped": Stopped.INTERRUPT})
            notes += [STOPPED_BY_USER] if STOPPED_BY_USER not in notes else []
        optimal = best.objective_s - bound_s <= 2 * proof.rounding_s
        notes += link_notes(self.model, best.cost, () if proof.proved is None else proof.proved.weights)
        return replace(
            best, bound_s=bound_s, rounding_s=proof.rounding_s, proved=proof.proved, notes=tuple(notes),
            status="optimal" if optimal else "feasible", stats={"rounds": rounds},
        )  # fmt: skip


def link_notes(model: Model, cost: PlanCost, weights: Mapping[str, float] | Weights) -> list[str]:
    """What is told of links: where one works for longer than a device waits, and of what the bound is. weights: those
    of the network that the bound is of.
    """
    if model.problem.objective != "overlap":
        return []
    busy = link_work(cost, model.prices)
    link = max(busy, key=lambda name: busy[name], default="")
    waited_s, worked_s = model.shared.exposure.waited_s(cost), busy.get(link, 0.0)
    notes: list[str] = []
    if worked_s > waited_s:
        notes.append(
            f"a device waits for {seconds_text(waited_s)} of each step, its busiest link ({link}) works for "
            f"{seconds_text(worked_s)}: objective overlap counts the greater"
        )
    if weights:
        mean = ", ".join(f"{100 * weight:.4g}% what {name} works" for name, weight in dict(weights).items())
        notes.append(
            f"the bound is that of a weighted mean ({mean}, the rest what a device waits for), which objective overlap "
            "is never below; no plan need reach it"
        )
    return notes
