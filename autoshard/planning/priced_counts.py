"""Counts of reshards as prices: the best plan where every reshard that counts costs something more.

Rows that limit a count leave reductions nothing to do, and what messages bound without them says little of plans that
keep it. With a price for every reshard that counts, and no rows, the network is as simple as one without counts. Its
optimum, less the prices times the limits, is a bound on all plans that keep the counts: none of them has more reshards
than are allowed. The prices of the highest bound are found by cutting planes, a linear program in the prices over the
plans seen so far; most of those plans keep the counts or nearly so, and the cheapest that does is often the optimum.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoshard.deadline import Deadline
from autoshard.formulation.assign import assignment_of
from autoshard.planning.decision import interrupted_in
from autoshard.planning.model import Model
from autoshard.planning.searches import Searches
from autoshard.solver.network import evaluate
from autoshard.solver.solution import Solution, Stopped

_MOST_SEARCHES = 12
"""Most searches with other prices."""
_PRICED_SHARE = 0.5
"""The part of a time limit that they may take."""
_RISES = 1e-4
"""They end where the bound can rise by no more than this part of it."""


def without_limit(
    searches: Searches, starts: tuple[Sequence[int], ...], until: Deadline
) -> tuple[Solution, tuple[Sequence[int], ...]]:
    """What is best without the memory limit, and the starts with what was found on the way to it.

    Where reshards are counted, they first have prices; if these do not prove an optimum, the search with the counts
    begins with the cheapest plan that keeps them. Raises `KeyboardInterrupt` where the user stopped it before there was
    such a plan.
    """
    if searches.model.counts:
        priced = _Prices(searches, starts, until.part(_PRICED_SHARE)).best()
        stopped = interrupted_in(searches.rounds)
        if priced is None and stopped:
            raise KeyboardInterrupt
        if priced is not None and (stopped or priced.status == "optimal"):
            return priced, starts
        starts += () if priced is None or priced.assignment is None else (priced.assignment,)
    return searches.solve(searches.model.with_limit(None), "solving", starts, until), starts


class _Prices:
    """seen: ticks of the plans seen and how many reshards each has, by count. known: the cheapest that keeps them."""

    def __init__(self, searches: Searches, starts: Sequence[Sequence[int]], until: Deadline) -> None:
        self.searches, self.until, self.starts = searches, until, list(starts)
        self.model: Model = searches.model
        self.counted = self.model.with_limit(None)
        self.seen: list[tuple[int, list[int]]] = []
        self.known: Solution | None = None

    def best(self) -> Solution | None:
        """The cheapest plan that keeps the counts, of those that searches find while their bound can rise; ``optimal``
        where they prove that no plan is cheaper. None where they find none. `searches` remembers their bounds.
        """
        asked: set[tuple[int, ...]] = set()
        prices = (0,) * len(self.model.counts)
        for _ in range(_MOST_SEARCHES):
            asked.add(prices)
            if not self._searched(prices):
                return self._answer()
            prices, most = self._next()  # costs are whole numbers
            bound = self.searches.bound
            closed = self.known is not None and self.known.cost is not None and self.known.cost <= bound
            if closed or prices in asked or most - bound <= _RISES * bound or self.until.passed:
                break
        return self._answer()

    def _searched(self, prices: tuple[int, ...]) -> bool:
        """Search with prices; whether it may go on."""
        told = "solving" if not any(prices) else "solving with a price for reshards"
        found = self.searches.solve(self.model.at_prices(prices), told, self.starts, self.until, prices=prices)
        if found.status == "infeasible":  # the search with the counts finds it too, and its proof is about them
            self.searches.proofs.pop()
            return False
        if found.assignment is not None:
            self._note(found.assignment)
        return found.assignment is not None and not interrupted_in(self.searches.rounds)

    def _note(self, assignment: Sequence[int]) -> None:
        """Remember a plan, in which reshards that nothing needs do not count."""
        model = self.model
        plain = assignment_of(model.collected, model.encoded, model.repeats, model.schedule(assignment))
        kept = evaluate(model.at_prices((0,) * len(model.counts)), assignment).cost
        if plain is not None and evaluate(model.at_prices((0,) * len(model.counts)), plain).cost == kept:
            assignment = plain
        assert kept is not None
        many = [
            sum(int(hits[assignment[node]]) for node, hits in zip(count.nodes, count.counted, strict=True))
            for count in model.counts
        ]
        self.seen.append((kept, many))
        self.starts.append(assignment)
        keeps = evaluate(self.counted, assignment).feasible
        if keeps and (self.known is None or self.known.cost is None or kept < self.known.cost):
            whole = tuple(map(int, assignment))
            self.known = Solution(whole, kept, 0, "feasible", stats={"stopped": Stopped.SEEN})
            self.searches.seen.append(whole)

    def _next(self) -> tuple[tuple[int, ...], float]:
        """The prices for which the plans seen leave the highest bound, and that bound."""
        from scipy.optimize import linprog

        limits = [count.limit for count in self.model.counts]
        scale = float(max(1, min(cost for cost, _ in self.seen)))
        # maximise t, t <= cost + sum of price * (reshards - limit) for every plan; no price is more than a whole step
        rows = [[1.0, *(float(limit - n) for n, limit in zip(many, limits, strict=True))] for _, many in self.seen]
        sides = [cost / scale for cost, _ in self.seen]
        bounds = [(None, None), *((0.0, 1.0) for _ in limits)]
        found = linprog([-1.0, *(0.0 for _ in limits)], A_ub=np.array(rows), b_ub=np.array(sides), bounds=bounds)
        return tuple(round(float(x) * scale) for x in found.x[1:]), -float(found.fun) * scale

    def _answer(self) -> Solution | None:
        if self.known is None or self.known.cost is None:
            return None
        bound = min(self.searches.bound, self.known.cost) if self.searches.proofs else 0
        proved = bound == self.known.cost
        stopped = Stopped.DONE if proved else Stopped.SEEN
        return replace(
            self.known, lower_bound=bound, status="optimal" if proved else "feasible", stats={"stopped": stopped}
        )
