"""Strategies by name: what a name means, and how each of them solves a model.

| name | how the open decisions are made |
| --- | --- |
| basic, aggressive, op-priority, user-priority | statements are propagated (Shardy's ladder), ops follow |
| greedy | cheapest op first, no decision is taken back |
| staged | by cost, priority after priority |
| joint | by cost, all at once |

Behind a colon stands the rule for conflicts inside of it: ``basic:first-factor`` (see `search.placing.Conflicts`).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoshard.errors import InfeasibleError, InputError
from autoshard.planning import ACCEPTED_GAP, Decision, Model, decide, finish
from autoshard.planning.model import Progress
from autoshard.propagation.engine import Strategy as Ladder
from autoshard.search.by_propagation import left_by_propagation
from autoshard.search.greedy import left_by_greedy
from autoshard.search.placing import Conflicts
from autoshard.search.restricted import EFFORT, CannotBe, Restricted, best_within

LADDER = tuple(rung.value for rung in Ladder)
SEARCHES = ("staged", "joint")
"""Strategies that decide by cost with a proof."""
NAMES = (*LADDER, "greedy", *SEARCHES)
BOUND_SHARE = 0.5
"""The part of a time limit that proving a bound beside a strategy without one may take."""
BOUND_EFFORT = 0.1
"""Work put into that proof."""


@dataclass(frozen=True, slots=True)
class StrategyName:
    """A strategy and its rule for conflicts.

    >>> StrategyName.parse("basic:first-factor"), str(StrategyName.parse("greedy"))
    (StrategyName(name='basic', conflicts=<Conflicts.FIRST_FACTOR: 'first-factor'>), 'greedy')
    """

    name: str
    conflicts: Conflicts | None = None

    @staticmethod
    def parse(text: str) -> "StrategyName":
        """`InputError` for unknown names and rules, and for rules with strategies that have no conflicts."""
        if not isinstance(text, str):
            raise InputError(f"a strategy is a name such as greedy or basic:first-factor, found {text!r}")
        name, colon, rule = (part.strip() for part in text.partition(":"))
        if name not in NAMES:
            import difflib

            near = difflib.get_close_matches(name, NAMES, n=1)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(f"unknown strategy {name!r}; {guess}the strategies are: {', '.join(NAMES)}")
        if not colon:
            return StrategyName(name)
        conflicts = Conflicts.from_text(rule)
        if name == "greedy" or (name in SEARCHES and conflicts is not Conflicts.COST):
            raise InputError(
                f"strategy {name!r} settles conflicts by cost; a rule such as {rule!r} goes with {', '.join(LADDER)}"
            )
        return StrategyName(name, conflicts)

    @property
    def rule(self) -> Conflicts:
        """How conflicts are settled: as stated, else not at all by propagation, and by cost by everything else."""
        if self.conflicts is not None:
            return self.conflicts
        return Conflicts.NONE if self.name in LADDER else Conflicts.COST

    def __str__(self) -> str:
        return self.name if self.conflicts is None else f"{self.name}:{self.conflicts.value}"


def strategy_names(text: str) -> tuple[StrategyName, ...]:
    """``a,b:rule,...`` as strategies, each once; `InputError` where one is unknown or named twice."""
    found: list[StrategyName] = []
    for item in text.split(","):
        if not item.strip():
            raise InputError(
                f"strategies are names with commas between them, such as basic,greedy,joint; found {text!r}"
            )
        strategy = StrategyName.parse(item)
        if strategy in found:
            raise InputError(f"strategy {strategy} is named twice")
        found.append(strategy)
    return tuple(found)


def default_strategy(model: Model) -> StrategyName:
    """Staged where priorities are stated, else joint."""
    stated = any(p > 0 for pin in model.problem.pins for p in pin.priorities)
    return StrategyName("staged" if stated else "joint")


def start_of(model: Model, strategy: StrategyName, deadline: float | None = None, effort: float = EFFORT) -> Restricted:
    """The best assignment of a strategy that searches without proof; `CannotBe` where it has none within the limit."""
    if strategy.name == "greedy":
        return best_within(model, left_by_greedy(model), deadline=deadline, effort=effort)
    assert strategy.name in LADDER, f"{strategy} is decided with a proof"
    return best_within(
        model, left_by_propagation(model, strategy.name, strategy.rule), deadline=deadline, effort=effort
    )


def decide_by(
    model: Model,
    strategy: StrategyName,
    *,
    starts: Sequence[Sequence[int]] = (),
    time_limit_s: float | None = None,
    effort: float = 1.0,
    seed: int = 0,
    accepted_gap: float = ACCEPTED_GAP,
    progress: Progress | None = None,
) -> Decision:
    """Solve a model as a strategy does. The bound is that of the joint model, whichever the strategy.

    Raises `InfeasibleError` where the strategy finds nothing, which is a proof for staged and joint only.
    """
    if strategy.name in SEARCHES:
        return decide(
            model, starts=starts, time_limit_s=time_limit_s, effort=effort, seed=seed, accepted_gap=accepted_gap,
            progress=progress,
        )  # fmt: skip
    say = progress or (lambda text: None)
    say(f"solving by {strategy}")
    began = time.monotonic()
    deadline = None if time_limit_s is None else began + time_limit_s * (1 - BOUND_SHARE)
    try:
        found = start_of(model, strategy, deadline)
    except CannotBe as error:
        raise InfeasibleError(
            f"strategy {strategy} has no plan under these statements: {error} (this is no proof that there is none); "
            "try strategy joint"
        ) from None
    left = None if time_limit_s is None else max(0.1, time_limit_s - (time.monotonic() - began))
    bound = bound_of(model, found.assignment, left, effort, seed, progress)
    assert found.solution.cost is not None
    solution = replace(
        found.solution, assignment=found.assignment, stats={"stopped": "strategy"},
        status="optimal" if bound >= found.solution.cost else "feasible",
    )  # fmt: skip
    rounds = [{"what": str(strategy), "stopped": "time" if found.timed_out else "done"}]
    decision = finish(model, solution, found.schedule, found.memory, bound, rounds)
    note = f"decided by strategy {strategy}, not by cost alone: joint may find a cheaper plan"
    return replace(decision, notes=(*decision.notes, note))


def bound_of(
    model: Model,
    start: Sequence[int],
    time_limit_s: float | None,
    effort: float,
    seed: int,
    progress: Progress | None = None,
) -> int:
    """A proven lower bound in ticks on every plan under the statements, whatever its memory."""
    from autoshard.solver import solve

    say = progress or (lambda text: None)
    say("proving a bound")
    solution = solve(
        model.with_limit(None), time_limit_s=time_limit_s, effort=BOUND_EFFORT * effort, seed=seed, starts=[start],
        gap=ACCEPTED_GAP,
    )  # fmt: skip
    return solution.lower_bound
