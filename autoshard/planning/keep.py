"""Which placements can hold together: each in turn is kept where it can hold beside those kept before it.

All statements and the memory limit count too. So earlier placements are preferred: no other choice keeps a placement
that this one drops without dropping an earlier one. A placement is dropped where it is proved impossible, or where no
plan with it was found.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autoshard.errors import InfeasibleError, OutOfTimeError
from autoshard.formulation.fixed import Fixed
from autoshard.formulation.pieces import Group, Left, Piece, grouped, holds, part_of, pieces_of
from autoshard.planning.decide import decide
from autoshard.planning.model import Model, build_model
from autoshard.planning.problem import Problem
from autoshard.program.schedule import Schedule
from autoshard.search_options import SearchOptions
from autoshard.solver.network import IMPOSSIBLE, CostNetwork, Edge
from autoshard.solver.solution import Stopped

MOST_CHECKS, LEAST_CHECKS = 150, 15
CHECKED_ENTRIES = 60_000_000
"""Table entries that the searches of one stage may visit once; so searches are fewer where networks are large.

After that, open placements are kept where the last plan found has them.
"""
ENOUGH_GAP = 0.9
"""Any plan shows that placements can hold, so a search for one may end at this gap."""
CHECK_EFFORT = 0.3
"""Effort of such a search, as a share of the effort of the plan."""
CHECK_SHARE = 0.1
"""Share of the remaining time that one such search may take."""


@dataclass(frozen=True)
class Dropped:
    """A group of pieces that cannot hold beside what is kept.

    fixed: the placements kept before the group, and the group. why: ``statements`` (they leave no such state),
    ``placements`` (those kept before it leave none) or ``memory`` (the limit). proved: False where only no plan was
    found.
    """

    group: Group
    fixed: Fixed
    why: str
    proved: bool

    @property
    def order(self) -> tuple[int, ...]:
        """The atoms of the first piece's factor or dimension, major to minor, up to and including the piece."""
        piece = self.group[0]
        atoms = getattr(self.fixed, piece.what)[piece.key][piece.index]
        return atoms[: atoms.index(piece.atom) + 1]


@dataclass(frozen=True)
class Answer:
    """Whether placements can hold.

    proved: whether a no is proved, or only no plan was found. why: as in `Dropped`.
    """

    yes: bool
    why: str = ""
    proved: bool = True


class Keeper:
    """Keeps placements for the stages of one problem; `witnesses` are plans under all of its statements and limits.

    searching: whether searches decide what the states of single nodes do not; without them, every placement counts as
    possible that the nodes can have.
    """

    def __init__(self, whole: Model, options: SearchOptions, witnesses: Sequence[Schedule], *, searching: bool):
        self.whole, self.options, self.searching = whole, options, searching
        self.problem: Problem = whole.problem
        self.witnesses = list(witnesses)
        self.left = Left(whole.collected, self.problem.program)
        self.checks = 0
        size = CHECKED_ENTRIES // max(1, whole.encoded.entries)
        self.most_checks = min(MOST_CHECKS, max(LEAST_CHECKS, size))

    def new(self, wanted: Fixed, dropped: Iterable[Dropped]) -> Fixed:
        """The placements without those dropped before: what could not hold then cannot hold beside more placements."""
        gone = {
            (p.what, p.key, p.index, p.atom): dropped_before.order
            for dropped_before in dropped
            for p in dropped_before.group
        }

        def again(piece: Piece) -> bool:
            order = gone.get((piece.what, piece.key, piece.index, piece.atom))
            atoms = getattr(wanted, piece.what)[piece.key][piece.index]
            return order is not None and tuple(a for a in atoms if a in order) == order

        return part_of(wanted, [piece for piece in pieces_of(wanted) if not again(piece)])

    def keep(self, layers: Sequence[Fixed], wanted: Fixed) -> tuple[Fixed, list[Dropped]]:
        """The part of some placements that can hold beside `layers` of placements, and the dropped rest.

        The layers can hold themselves.
        """
        base = self.left
        for layer in layers:
            narrowed = base.narrowed(layer)
            assert narrowed is not None, "placements that were kept leave every node a state"
            base = narrowed
        rest = grouped(base, self.whole.repeats.class_of.tolist(), wanted)
        kept: list[Piece] = []
        dropped: list[Dropped] = []
        while rest:
            here = base.narrowed(part_of(wanted, kept))
            assert here is not None
            fits = here.fitting(wanted, kept, rest)
            if self.searching and self._exhausted():
                self._as_found(layers, wanted, kept, dropped, zip(rest, fits, strict=True))
                break
            chosen = [group for group, fit in zip(rest, fits, strict=True) if fit]
            count, answer = len(chosen), None
            if self.searching:  # where one group cannot hold, the next one often cannot either
                count, answer = self._longest(layers, wanted, kept, chosen, 1 if dropped else len(chosen))
            for number, (group, fit) in enumerate(zip(rest, fits, strict=True)):
                if fit and count:
                    kept += group
                    count -= 1
                    continue
                dropped.append(self._dropped(wanted, kept, group, answer if fit else None))
                if not fit:
                    continue
                rest = rest[number + 1 :]
                break
            else:
                rest = []
        return part_of(wanted, kept), dropped

    def _longest(
        self, layers: Sequence[Fixed], wanted: Fixed, kept: Sequence[Piece], chosen: Sequence[Group], asked: int
    ) -> tuple[int, Answer | None]:
        """How many of the first groups can hold beside what is kept, and why the next one cannot.

        asked: how many groups the first search tries together.
        """

        def first(count: int) -> Fixed:
            return part_of(wanted, [*kept, *(piece for group in chosen[:count] for piece in group)])

        def shown(plans: Sequence[Schedule]) -> int:
            """How many of the first groups some plan has together."""
            best = 0
            for plan in plans:
                if all(holds(plan, layer) for layer in (*layers, part_of(wanted, kept))):
                    count = 0
                    while count < len(chosen) and holds(plan, part_of(wanted, chosen[count])):
                        count += 1
                    while count and not holds(plan, first(count)):  # the plan may have each group, but in another order
                        count -= 1
                    best = max(best, count)
            return best

        good, bad, step = shown(self.witnesses), len(chosen) + 1, 1
        asked = max(asked, good + 1)
        answer: Answer | None = None
        while good < len(chosen) and bad - good > 1:
            held = self._can_hold([*layers, first(asked)])
            if held.yes:
                good, step = max(asked, shown(self.witnesses[-1:])), 2 * step
            else:
                bad, answer = asked, held
            asked = min(good + step, (good + bad) // 2)
        return good, answer

    def _dropped(self, wanted: Fixed, kept: Sequence[Piece], group: Group, answer: Answer | None) -> Dropped:
        """The record of a dropped group. answer: of the search; None where the states of the nodes rule the group
        out.
        """
        with_it = part_of(wanted, [*kept, *group])
        if answer is None:
            alone = self.left.narrowed(part_of(wanted, group))
            return Dropped(group, with_it, "statements" if alone is None else "placements", True)
        return Dropped(group, with_it, answer.why, answer.proved)

    def _exhausted(self) -> bool:
        return self.checks >= self.most_checks or self.options.deadline.passed

    def _as_found(
        self, layers: Sequence[Fixed], wanted: Fixed, kept: list[Piece], dropped: list[Dropped],
        rest: Iterable[tuple[Group, bool]],
    ) -> None:  # fmt: skip
        """Without further searches: keep the placements that the last plan with everything kept so far has."""
        sure = [*layers, part_of(wanted, kept)]
        plan = next((p for p in reversed(self.witnesses) if all(holds(p, layer) for layer in sure)), None)
        why = "placements" if self.problem.memory_limit is None else "memory"
        for group, fit in rest:
            if fit and plan is not None and holds(plan, part_of(wanted, [*kept, *group])):
                kept += group
            else:
                dropped.append(self._dropped(wanted, kept, group, Answer(False, why, False) if fit else None))

    def _can_hold(self, layers: Sequence[Fixed]) -> Answer:
        """Whether there is a plan with these placements under all statements; the plan becomes a witness."""
        limit = self.problem.memory_limit
        here: Left | None = self.left
        for layer in layers:
            here = None if here is None else here.narrowed(layer)
        if here is None:
            return Answer(False, "placements")
        if limit is not None and here.least_bytes() > limit:
            return Answer(False, "memory")
        if self._exhausted():
            return Answer(False, "placements" if limit is None else "memory", False)
        self.checks += 1
        try:
            model = build_model(self.problem, fixed=layers, shared=self.whole.shared)
        except InfeasibleError:
            return Answer(False, "placements")
        if limit is None:
            return self._possible(model)
        options = self.options.rougher(ENOUGH_GAP, CHECK_EFFORT)
        try:
            decision = decide(model, options.part(CHECK_SHARE))
        except InfeasibleError as error:
            possible = self._possible(model, remember=False)
            if not possible.yes and possible.proved:
                return possible
            return Answer(False, "memory", bool(error.facts.get("proved", True)))
        except OutOfTimeError:
            return Answer(False, "memory", False)
        if decision.interrupted:
            raise KeyboardInterrupt
        self.witnesses.append(decision.schedule)
        return Answer(True)

    def _possible(self, model: Model, *, remember: bool = True) -> Answer:
        """Whether a model has any plan, memory apart; costs do not count."""
        from autoshard.solver import solve

        network = model.with_limit(None)
        edges = tuple(
            Edge(e.first, e.second, np.where(e.costs >= IMPOSSIBLE, IMPOSSIBLE, 0))
            for e in network.edges
            if (e.costs >= IMPOSSIBLE).any()
        )
        costs = tuple(np.where(c >= IMPOSSIBLE, IMPOSSIBLE, 0) for c in network.costs)
        bare = CostNetwork(costs, edges, network.usages, network.usage_limit, network.facets)
        solution = solve(bare, effort=self.options.effort, seed=self.options.seed, gap=1.0)
        if solution.stopped is Stopped.INTERRUPT:
            raise KeyboardInterrupt
        if solution.assignment is None:
            return Answer(False, "placements", solution.status == "infeasible")
        if remember:
            self.witnesses.append(model.schedule(solution.assignment))
        return Answer(True)
