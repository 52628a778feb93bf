"""How each strategy solves a model; see `strategies.choice` for what their names mean."""

from collections.abc import Sequence
from dataclasses import replace

from autoshard.deadline import Deadline
from autoshard.errors import NotFoundError
from autoshard.planning import (
    ACCEPTED_GAP,
    Decision,
    Model,
    SearchOptions,
    StagePlan,
    answer,
    best_seen,
    decide_staged,
    finish,
)
from autoshard.planning.spread import spread
from autoshard.planning.stages import stated_stages
from autoshard.search.by_propagation import left_by_propagation
from autoshard.search.greedy import left_by_greedy
from autoshard.search.placing import Placing
from autoshard.search.restricted import EFFORT, CannotBe, Restricted, best_within
from autoshard.solver.solution import Solution, Stopped
from autoshard.strategies.choice import LADDER, SEARCHES, Conflicts, StrategyName

BOUND_SHARE = 0.5
"""The part of a time limit that proving a bound beside a strategy without one may take."""
BOUND_EFFORT = 0.1
"""Work put into that proof."""


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
    """Solve a model as a strategy does. The bound is that of the joint model; of staged that of the last stage.

    stages: of staged; those of the statements' priorities where not given.
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
        found = start_of(model, strategy, options.deadline.part(1 - BOUND_SHARE))
    except CannotBe as error:
        raise NotFoundError(
            f"strategy {strategy} found no plan under these statements: {error} (this is no proof that there is none); "
            "try strategy joint"
        ) from None
    try:
        proof = bound_of(model, found.assignment, options)
    except KeyboardInterrupt:
        return best_seen(model, [found.assignment])
    bound = proof.lower_bound
    assert found.solution.cost is not None
    solution = replace(
        found.solution, assignment=found.assignment, stats={"stopped": Stopped.STRATEGY},
        status="optimal" if bound >= found.solution.cost else "feasible",
    )  # fmt: skip
    rounds = [{"what": str(strategy), "stopped": Stopped.TIME if found.timed_out else Stopped.DONE}]
    if proof.stopped in (Stopped.TIME, Stopped.INTERRUPT):
        rounds.append({"what": "the bound", "stopped": proof.stopped})
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


def bound_of(model: Model, start: Sequence[int], options: SearchOptions) -> Solution:
    """What proves a lower bound in ticks on every plan under the statements, whatever its memory."""
    from autoshard.solver import solve

    options.say("proving a bound")
    return solve(
        model.with_limit(None), time_limit_s=options.deadline.left(), effort=BOUND_EFFORT * options.effort,
        seed=options.seed, starts=[start], gap=ACCEPTED_GAP,
    )  # fmt: skip
