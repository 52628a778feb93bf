"""The searches of one decision: each solves a network of the model, and is written down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from autoshard.deadline import Deadline
from autoshard.planning import fitting
from autoshard.planning.decision import Known, Search, interrupted_in, progress_words
from autoshard.planning.heap import give_back
from autoshard.planning.model import Model
from autoshard.planning.steps import CLOSELY, MOST_DEAD_ENDS_EFFORT, SMALL_NODES, Step
from autoshard.search_options import SearchOptions
from autoshard.solver.few_states import Few, States
from autoshard.solver.incumbent import Progress
from autoshard.solver.network import CostNetwork
from autoshard.solver.solution import Solution

By = Callable[..., Any]


@dataclass
class Searches:
    """seen: what searches found; rounds: how they went; proofs: what they proved. standing, likely: of networks that
    are too large to be looked at entry by entry, where messages stand, and what looked best after each search.
    """

    model: Model
    options: SearchOptions
    seen: list[Sequence[int]]
    rounds: list[dict[str, Any]]
    proofs: list[Search]
    standing: Any = None
    likely: list[States] = field(default_factory=list)

    @property
    def small(self) -> bool:
        """Whether rough searches are worth it."""
        return self.model.repeats.network.n_nodes <= SMALL_NODES

    @property
    def bound(self) -> int:
        """In ticks: no plan costs less."""
        return max(search.bound for search in self.proofs)

    def solve(
        self,
        network: CostNetwork,
        what: str,
        given: Sequence[Sequence[int]],
        until: Deadline,
        step: Step = CLOSELY,
        *,
        known: Known | None = None,
        proves: bool = True,
        within: int | None = None,
        moments: Mapping[int, frozenset[int]] | None = None,
        few: States | None = None,
        prices: tuple[int, ...] = (),
    ) -> Solution:
        """Solve a network. step: how closely; known: the best plan. proves: its bound holds for all plans. within,
        moments, prices: see `Search`. few: with these states alone.
        """
        from autoshard.solver import anything, solve

        options = self.options
        options.say(what)
        trace: list[tuple[float, float, float | None]] = []

        def told(now: Progress) -> None:
            options.say(f"{what}: {progress_words(now, self.model.encoded.tick_s)}")
            if now.cost is not None:
                tick, bound = self.model.encoded.tick_s, now.lower_bound
                trace.append((now.seconds, now.cost * tick, None if bound is None else min(bound, now.cost) * tick))

        part = None if few is None else Few(network, few)
        network, given = (network, given) if part is None else (part.network, part.within(given))
        gap = 0.0 if (network.usage_limit is None or self.small) and not network.is_factored else options.accepted_gap
        if step.dead_ends:
            ends = ceil(step.dead_ends * min(options.effort, MOST_DEAD_ENDS_EFFORT))
            solution = anything(network, ends, deadline=until.part(1.0), progress=told)
        else:
            fits = None if moments is None or within is None or step.rough else fitting.fits_within(self.model, within)
            solution = solve(
                network, deadline=until.part(1.0), effort=options.effort * step.effort(known), seed=options.seed,
                starts=given, standing=self.standing, gap=gap, rough=step.rough, progress=told, proves=step.proves,
                wanted=fits,
            )  # fmt: skip
        solution = solution if part is None else part.back(solution)
        self.standing = solution.standing or self.standing
        spared = sum(p * count.limit for p, count in zip(prices, self.model.counts, strict=False))
        bound = solution.lower_bound - spared
        told_of = {"what": what, "status": solution.status, "bound": bound, "proves": proves}
        self.rounds.append({**told_of, "trace": trace, **solution.stats})
        if proves:
            self.proofs.append(Search(solution, within, moments, prices, spared))
        solution = self.model.without_memory(solution)
        self.likely += [] if solution.likely is None else [solution.likely]
        if solution.assignment is not None:
            self.seen.append(solution.assignment)
        if self.model.encoded.left_out[0]:
            give_back()
        return solution

    def fitted(self, limit: int, near: Sequence[int], share: float, by: By, fit: By) -> Known | None:
        """A plan that `fit` finds (see `fitting`), which searches `by`, in a part of the time that is left."""
        until = self.options.deadline.part(share)

        def run(room: Any, given: Sequence[Sequence[int]], *step: Step) -> Solution | None:
            return None if until.passed or interrupted_in(self.rounds) else by(room, given, until, *step)

        return fitting.fit_of(self.model, fit(self.model, limit, near, run), limit)
