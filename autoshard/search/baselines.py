"""Named strategies priced in the same program: op placements and activations pinned, not inputs alone.

A baseline's statements are propagated over the program. Every op then has the placement that propagation gives it, and
inputs have their stated shardings. Open decisions (which reshard, all-reduce or reduce-scatter, and ops whose tensors
disagree) are solved, so a baseline has its best form. Its assignment is a start for the solver: a plan is never worse
than a baseline under the same statements.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoshard.costs.price import price
from autoshard.deadline import Deadline
from autoshard.errors import AutoshardError, InputError
from autoshard.formulation.domains import satisfies
from autoshard.formulation.model import NodeKind
from autoshard.placements.switching import with_switches
from autoshard.plan_record import BaselineCost
from autoshard.planning import Model
from autoshard.propagation import propagate
from autoshard.search.by_stated import check_stated, left_by_stated
from autoshard.search.placing import Placing, allowed_states, placed_states
from autoshard.search.restricted import CannotBe, best_within
from autoshard.search_options import SearchOptions
from autoshard.sharding.layout import AtomMesh
from autoshard.strategies.named import (
    NamedStrategy,
    Roles,
    check_rules,
    named_strategy,
    statements,
    strategy_from_rules,
)
from autoshard.strategies.stated import StatedShardings

LEAST_S = 1.0
"""Least seconds of the search for one baseline, however little is left of the time limit."""
Baseline = str | Mapping[str, object] | NamedStrategy | StatedShardings
"""A name (``fsdp+tensor``), the user's rules (``{"name": "mine", "rules": {"batch": ["data"]}}``), or a strategy.

Shardings of one's own (``{"name": "mine", "in_shardings": ...}``) become `StatedShardings` where the function is known.
"""


TOO_LATE = "the time limit was reached before it was priced"
NO_DEADLINE = Deadline()


@dataclass(frozen=True)
class PricedBaseline:
    """A baseline with its price.

    cost: for reports. assignment: on the model's network; None where the baseline cannot be.
    timed_out: the wall clock ended a search for its best form, so another run may price it otherwise. exhausted: it is
    proved that it cannot be.
    """

    cost: BaselineCost
    assignment: tuple[int, ...] | None
    timed_out: bool = False
    exhausted: bool = False


def price_baselines(
    model: Model,
    baselines: Sequence[Baseline],
    roles: Roles | None,
    *,
    slow: Collection[str] = (),
    options: SearchOptions | None = None,
) -> list[PricedBaseline]:
    """Price each strategy; one that cannot hold (memory, pins, divisibility) has no objective but a reason.

    The deadline is for all of them together.
    slow: mesh axes between slices, which named strategies use for data parallelism only.
    Raises `InputError` for unknown names, two baselines of one name, rules about unknown axes, and baselines without
    `roles`.
    """
    return list(each_baseline(model, baselines, roles, slow=slow, options=options))


def each_baseline(
    model: Model,
    baselines: Sequence[Baseline],
    roles: Roles | None,
    *,
    slow: Collection[str] = (),
    options: SearchOptions | None = None,
    until: Deadline = NO_DEADLINE,
    only: Collection[str] | None = None,
) -> Iterator[PricedBaseline]:
    """As `price_baselines`, one after the other, so that a stopped run has those priced before.

    until: once this is over and a baseline has given a plan, the others have no price but a reason. (Each of them may
    take some seconds: a search has at least one, and there may be one for each round within a memory limit.) only: the
    names of those that are priced; None for all.
    """
    if not roles and any(not isinstance(b, StatedShardings) for b in baselines):
        raise InputError(
            "baselines need the logical axes of the inputs; models of the library have them, for your own function "
            "give logical_axes (config) or roles (Python), such as {'params/w1': ['embed', 'mlp'], 'batch/x': "
            "['batch', None]}"
        )
    options, planned = options or SearchOptions(), False
    for strategy in _by_name(model, baselines, roles, slow).values():
        if only is not None and strategy.name not in only:
            continue
        if planned and until.passed:
            yield PricedBaseline(
                BaselineCost(name=strategy.name, objective_s=None, reason=TOO_LATE), None, timed_out=True
            )
            continue
        options.say(f"pricing baseline {strategy.name}")
        priced = _price(model, strategy, roles, options.deadline)
        planned = planned or priced.assignment is not None
        yield priced


def _by_name(
    model: Model, baselines: Sequence[Baseline], roles: Roles | None, slow: Collection[str]
) -> dict[str, NamedStrategy | StatedShardings]:
    """The strategies by their names; one that is asked for twice is there once, and two of one name are an error."""
    strategies: dict[str, NamedStrategy | StatedShardings] = {}
    for baseline in baselines:
        if isinstance(baseline, StatedShardings):
            strategy = baseline
        else:
            strategy = read_baseline(baseline, model.problem.mesh, slow)
        if isinstance(baseline, Mapping):
            assert isinstance(strategy, NamedStrategy) and roles is not None
            check_rules(strategy, roles)
        if strategies.setdefault(strategy.name, strategy) != strategy:
            raise InputError(f"two baselines are called {strategy.name!r}: their rows could not be told apart")
    return strategies


def read_baseline(
    baseline: str | Mapping[str, object] | NamedStrategy, mesh: AtomMesh, slow: Collection[str] = ()
) -> NamedStrategy:
    """The strategy that a name or a mapping of rules stands for; `InputError` where there is none."""
    if isinstance(baseline, NamedStrategy):
        return baseline
    if isinstance(baseline, str):
        return named_strategy(baseline, mesh.mesh, slow)
    name, rules = baseline.get("name"), baseline.get("rules")
    if not isinstance(name, str) or not isinstance(rules, Mapping) or set(baseline) != {"name", "rules"}:
        raise InputError(f"a baseline with rules is {{name: mine, rules: {{batch: [data]}}}}, found {dict(baseline)}")
    return strategy_from_rules(name, rules, mesh.mesh)


def _price(
    model: Model, strategy: NamedStrategy | StatedShardings, roles: Roles | None, deadline: Deadline
) -> PricedBaseline:
    try:
        if isinstance(strategy, StatedShardings):
            restricted = best_within(model, left_by_stated(model, strategy), deadline=deadline)
            check_stated(model, restricted.schedule, strategy)
        else:
            restricted = best_within(model, left_by(model, strategy, roles or {}), deadline=deadline)
    except CannotBe as error:
        none = BaselineCost(name=strategy.name, objective_s=None, reason=str(error))
        return PricedBaseline(none, None, error.timed_out, error.exhausted)
    except AutoshardError as error:
        none = BaselineCost(name=strategy.name, objective_s=None, reason=str(error))
        return PricedBaseline(none, None, exhausted=True)
    # priced from its schedule, as the plan is: rounding to ticks would make equal plans differ
    cost = price(model.problem.program, restricted.schedule, model.fusion, model.prices, model.problem.trips)
    seconds = model.seconds(cost) + model.memory_price_s(restricted.assignment)
    baseline = BaselineCost(name=strategy.name, objective_s=seconds, peak_bytes=restricted.memory.peak_bytes)
    return PricedBaseline(baseline, restricted.assignment, restricted.timed_out)


def left_by(model: Model, strategy: NamedStrategy, roles: Roles) -> list[np.ndarray]:
    """Per node of the model's network, the states that the strategy leaves."""
    program, mesh = model.problem.program, model.problem.mesh
    stated = statements(strategy, program, mesh.mesh, roles)
    switched, forms = with_switches(program, stated.switches)
    spread = dict(stated.spread) | {forms[v]: s for v, s in stated.switches.items()}
    contested = frozenset(a for axis in strategy.switching for a in mesh.atoms_of[axis])
    placing = Placing(switched, mesh, propagate(switched, mesh.mesh, spread).values, contested=contested)
    ops = switched.ops

    def wanted(index: int) -> np.ndarray | None:
        node = model.collected.nodes[index]
        if node.kind is NodeKind.OP:
            assert node.op is not None
            return placed_states(model, index, *placing.of(ops[node.op]))
        if node.kind is NodeKind.INPUT and node.value is not None and node.value in stated.pins:
            pin = stated.pins[node.value]
            kept = model.encoded.states[index]
            return np.array([k for k, s in enumerate(kept) if satisfies(node.layouts[s], pin, mesh)], np.int64)
        return None

    return allowed_states(model, wanted)
