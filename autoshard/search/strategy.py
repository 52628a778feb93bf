"""How each strategy solves a model; see `strategies.choice` for what their names mean."""

from collections.abc import Sequence
from dataclasses import replace

from autoshard.deadline import Deadline
from autoshard.errors import NotFoundError
from autoshard.planning import (
    Decision,
    Model,
    StagePlan,
    answer,
    best_seen,
    decide_staged,
    finish,
)
from autoshard.planning.decision import Search
from autoshard.planning.spread import spread
from autoshard.planning.stages import stated_stages
from autoshard.search.by_propagation import left_by_propagation
from autoshard.search.greedy import left_by_greedy
from autoshard.search.placing import Placing
from autoshard.search.restricted import EFFORT, CannotBe, Restricted, best_within
from autoshard.search_options import ACCEPTED_GAP, SearchOptions
from autoshard.solver.solution import Solution, Stopped
from autoshard.strategies.choice import LADDER, SEARCHES, Conflicts, StrategyName

BOUND_SHARE = 0.5
"""Share of the time limit for proving a bound where the strategy itself gives none."""
BOUND_EFFORT = 0.1
"""Effort of that proof."""


def default_strategy(model: Model) -> StrategyName:
    """Staged where priorities are stated, else joint."""
    stated = any(p > 0 for pin in model.problem.pins for p in pin.priorities)
    return StrategyName("staged" if stated else "joint")


def start_of(
    model: Model, strategy: StrategyName, deadline: Deadline | None = None, effort: float = EFFORT
) -> Restricted:
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
    options: SearchOptions | None = None,
    *,
    starts: Sequence[Sequence[int]] = (),
    stages: Sequence[StagePlan] | None = None,
) -> Decision:
    """Solve a model by a strategy. The bound is that of the joint model; for staged, that of the last stage.

    stages: for staged; where they are not given, those of the statements' priorities.
    Raises `InfeasibleError` where it is proved that no plan exists (staged and joint only), `NotFoundError` where the
    strategy finds none.
    """
    options = options or SearchOptions()
    if strategy.name == "staged":
        if stages is None and strategy.rule is not Conflicts.COST:
            stages = [settled(model, stage, strategy.rule) for stage in stated_stages(model.problem)]
        return decide_staged(model.problem, stages, options, joint_model=model, starts=starts)
    if strategy.name in SEARCHES:
        return answer(model, options, starts=starts)
    options.say(f"solving by {strategy}")
    try:
        restricted = start_of(model, strategy, options.deadline.part(1 - BOUND_SHARE))
    except CannotBe as error:
        raise NotFoundError(
            f"strategy {strategy} found no plan under these statements: {error} (this is no proof that there is none); "
            "try strategy joint"
        ) from None
    try:
        proof = bound_of(model, restricted.assignment, options)
    except KeyboardInterrupt:
        return best_seen(model, [restricted.assignment])
    bound = proof.lower_bound
    assert restricted.solution.cost is not None
    solution = replace(
        restricted.solution, assignment=restricted.assignment, stats={"stopped": Stopped.STRATEGY},
        status="optimal" if bound >= restricted.solution.cost else "feasible",
    )  # fmt: skip
    rounds = [{"what": str(strategy), "stopped": Stopped.TIME if restricted.timed_out else Stopped.DONE}]
    if proof.stopped in (Stopped.TIME, Stopped.INTERRUPT):
        rounds.append({"what": "the bound", "stopped": proof.stopped})
    decision = finish(model, solution, restricted.schedule, restricted.memory, bound, rounds, [Search(proof)])
    note = f"decided by strategy {strategy}, not by cost alone: joint may find a cheaper plan"
    return replace(decision, notes=(*decision.notes, note))


def settled(model: Model, stage: StagePlan, rule: Conflicts) -> StagePlan:
    """A stage whose conflicts are settled by a rule: the contested axes become placements that the stage starts
    from.
    """
    problem = model.problem
    shardings = spread(problem.program, problem.mesh, stage.pins, problem.groups, problem.restrictions)
    placing = Placing(problem.program, problem.mesh, shardings.values, rule)
    cuts = {op.id: tuple(map(tuple, placing.of(op)[0])) for op, _ in problem.program.walk() if op.rule is not None}
    return replace(stage, given=replace(stage.given, ops={k: cut for k, cut in cuts.items() if any(cut)}))


def bound_of(model: Model, start: Sequence[int], options: SearchOptions) -> Solution:
    """A solution whose lower bound, in ticks, holds for every plan under the statements, whatever its memory."""
    from autoshard.solver import solve

    options.say("proving a bound")
    return solve(
        model.with_limit(None), deadline=options.deadline.part(1.0), effort=BOUND_EFFORT * options.effort,
        seed=options.seed, starts=[start], gap=ACCEPTED_GAP,
    )  # fmt: skip
