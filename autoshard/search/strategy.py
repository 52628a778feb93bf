"""How each strategy solves a model; see `strategies.choice` for what their names mean."""

import time
from collections.abc import Sequence
from dataclasses import replace

from autoshard.errors import NotFoundError
from autoshard.planning import ACCEPTED_GAP, Decision, Model, StagePlan, best_seen, decide, decide_staged, finish
from autoshard.planning.model import Progress
from autoshard.planning.spread import spread
from autoshard.planning.stages import stated_stages
from autoshard.search.by_propagation import left_by_propagation
from autoshard.search.greedy import left_by_greedy
from autoshard.search.placing import Placing
from autoshard.search.restricted import EFFORT, CannotBe, Restricted, best_within
from autoshard.solver.solution import Solution
from autoshard.strategies.choice import LADDER, SEARCHES, Conflicts, StrategyName

BOUND_SHARE = 0.5
"""The part of a time limit that proving a bound beside a strategy without one may take."""
BOUND_EFFORT = 0.1
"""Work put into that proof."""


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
    stages: Sequence[StagePlan] | None = None,
    progress: Progress | None = None,
) -> Decision:
    """Solve a model as a strategy does. The bound is that of the joint model; of staged that of the last stage.

    stages: of staged; those of the statements' priorities where not given.
    Raises `InfeasibleError` where it is proved that no plan exists (staged and joint only), `NotFoundError` where the
    strategy finds none.
    """
    if strategy.name == "staged":
        if stages is None and strategy.rule is not Conflicts.COST:
            stages = [settled(model, stage, strategy.rule) for stage in stated_stages(model.problem)]
        return decide_staged(
            model.problem, stages, joint_model=model, starts=starts, time_limit_s=time_limit_s, effort=effort,
            seed=seed, accepted_gap=accepted_gap, progress=progress,
        )  # fmt: skip
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
        raise NotFoundError(
            f"strategy {strategy} found no plan under these statements: {error} (this is no proof that there is none); "
            "try strategy joint"
        ) from None
    left = None if time_limit_s is None else max(0.1, time_limit_s - (time.monotonic() - began))
    try:
        proof = bound_of(model, found.assignment, left, effort, seed, progress)
    except KeyboardInterrupt:
        return best_seen(model, [found.assignment])
    bound = proof.lower_bound
    assert found.solution.cost is not None
    solution = replace(
        found.solution, assignment=found.assignment, stats={"stopped": "strategy"},
        status="optimal" if bound >= found.solution.cost else "feasible",
    )  # fmt: skip
    rounds = [{"what": str(strategy), "stopped": "time" if found.timed_out else "done"}]
    if proof.stats["stopped"] in ("time", "interrupt"):
        rounds.append({"what": "the bound", "stopped": proof.stats["stopped"]})
    decision = finish(model, solution, found.schedule, found.memory, bound, rounds)
    note = f"decided by strategy {strategy}, not by cost alone: joint may find a cheaper plan"
    return replace(decision, notes=(*decision.notes, note))


def settled(model: Model, stage: StagePlan, rule: Conflicts) -> StagePlan:
    """A stage whose conflicts are settled by a rule: the axes concerned are given there too."""
    problem = model.problem
    found = spread(problem.program, problem.mesh, stage.pins, problem.groups, problem.restrictions)
    placing = Placing(problem.program, problem.mesh, found.values, rule)
    cuts = {op.id: tuple(map(tuple, placing.of(op)[0])) for op, _ in problem.program.walk() if op.rule is not None}
    return replace(stage, given=replace(stage.given, ops={k: cut for k, cut in cuts.items() if any(cut)}))


def bound_of(
    model: Model,
    start: Sequence[int],
    time_limit_s: float | None,
    effort: float,
    seed: int,
    progress: Progress | None = None,
) -> Solution:
    """What proves a lower bound in ticks on every plan under the statements, whatever its memory."""
    from autoshard.solver import solve

    say = progress or (lambda text: None)
    say("proving a bound")
    return solve(
        model.with_limit(None), time_limit_s=time_limit_s, effort=BOUND_EFFORT * effort, seed=seed, starts=[start],
        gap=ACCEPTED_GAP,
    )  # fmt: skip
