"""Named strategies priced in the same program: op placements and activations pinned, not inputs alone.

A baseline's statements are propagated over the program; every op may then only run where propagation put it, and
inputs lie as stated. What is left (which reshard, all-reduce or reduce-scatter, and ops whose tensors disagree) is
solved, so a baseline is the best version of itself. Its assignment is a start for the solver: a plan is never worse
than a baseline under the same statements.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoshard.costs.memory import MemoryProfile
from autoshard.costs.price import price
from autoshard.errors import AutoshardError, InputError, ShardingError
from autoshard.formulation.domains import satisfies
from autoshard.formulation.model import NodeKind
from autoshard.planning import ACCEPTED_GAP, Model, name_nodes
from autoshard.plans import BaselineCost
from autoshard.program.program import Op
from autoshard.propagation import propagate
from autoshard.propagation.projection import project
from autoshard.propagation.spec import Spec, axis_ref, to_spec
from autoshard.schedule import Schedule
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.tensor_sharding import TensorSharding
from autoshard.solver.network import CostNetwork, Edge, Usage
from autoshard.strategies.named import (
    NamedStrategy,
    Roles,
    check_rules,
    named_strategy,
    statements,
    strategy_from_rules,
)
from autoshard.strategies.switching import with_switches

LEAST_S = 1.0
"""What the search for one baseline is given at least, however little is left of the time limit."""
MEMORY_ROUNDS = 4
"""How often the limit is tightened for copies that the network does not see."""
EFFORT = 0.05
"""Work that the solver puts into one baseline: most of what is left open is decided by reductions."""

Baseline = str | Mapping[str, object] | NamedStrategy
"""A name (``fsdp+tensor``), the user's rules (``{"name": "mine", "rules": {"batch": ["data"]}}``), or a strategy."""


@dataclass(frozen=True)
class PricedBaseline:
    """cost for reports; assignment on the model's network (None where it cannot be).

    timed_out: the wall clock ended a search for its best form, so another run may price it otherwise.
    """

    cost: BaselineCost
    assignment: tuple[int, ...] | None
    timed_out: bool = False


def price_baselines(
    model: Model,
    baselines: Sequence[Baseline],
    roles: Roles | None,
    *,
    slow: Collection[str] = (),
    time_limit_s: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[PricedBaseline]:
    """Price each strategy; one that cannot hold (memory, pins, divisibility) has no objective but a reason.

    time_limit_s: guard on the wall clock, for all of them together.
    slow: mesh axes between slices, which named strategies use for data parallelism only.
    Raises `InputError` for unknown names, rules about unknown axes, and baselines without `roles`.
    """
    if baselines and not roles:
        raise InputError(
            "baselines need the logical axes of the inputs; models of the library have them, for your own function "
            "give logical_axes (config) or roles (Python), such as {'params/w1': ['embed', 'mlp'], 'batch/x': "
            "['batch', None]}"
        )
    out, seen = [], set()
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    for baseline in baselines:
        strategy = read_baseline(baseline, model.problem.mesh, slow)
        assert roles is not None
        if isinstance(baseline, Mapping):
            check_rules(strategy, roles)
        if strategy.name in seen:
            continue
        seen.add(strategy.name)
        if progress:
            progress(f"pricing baseline {strategy.name}")
        out.append(_price(model, strategy, roles, deadline))
    return out


def read_baseline(baseline: Baseline, mesh: AtomMesh, slow: Collection[str] = ()) -> NamedStrategy:
    """The strategy that a name or a mapping of rules stands for; `InputError` where it is none."""
    if isinstance(baseline, NamedStrategy):
        return baseline
    if isinstance(baseline, str):
        return named_strategy(baseline, mesh.mesh, slow)
    name, rules = baseline.get("name"), baseline.get("rules")
    if not isinstance(name, str) or not isinstance(rules, Mapping) or set(baseline) != {"name", "rules"}:
        raise InputError(f"a baseline with rules is {{name: mine, rules: {{batch: [data]}}}}, found {dict(baseline)}")
    return strategy_from_rules(name, rules, mesh.mesh)


def _price(model: Model, strategy: NamedStrategy, roles: Roles, deadline: float | None) -> PricedBaseline:
    timed_out = False

    def impossible(reason: str) -> PricedBaseline:
        return PricedBaseline(BaselineCost(strategy.name, None, None, reason), None, timed_out)

    def within(least: int | None) -> "tuple[tuple[int, ...], Schedule, MemoryProfile] | str":
        nonlocal timed_out
        found, stopped = _within(model, allowed, least, deadline)
        timed_out |= stopped == "time"
        return found

    try:
        allowed = allowed_states(model, strategy, roles)
    except AutoshardError as error:
        return impossible(str(error))
    for cls, keep in enumerate(allowed):
        if not len(keep):
            node = model.collected.nodes[model.repeats.representative(cls)]
            return impossible(f"the statements leave no layout for {node.kind.value} {node.label}")
    limit = model.problem.memory_limit
    found = within(None)
    if isinstance(found, str):
        return impossible(found)
    assignment, schedule, memory = found
    slack = 0
    for attempt in range(MEMORY_ROUNDS):
        if limit is None or memory.peak_bytes <= limit:
            break
        if attempt:  # room for copies that one op alone makes, which the network does not see (see `planning.decide`)
            slack += memory.peak_bytes - limit
        found = within(limit - slack)
        if isinstance(found, str):
            return impossible(found)
        assignment, schedule, memory = found
    if limit is not None and memory.peak_bytes > limit:
        return impossible(f"it holds {memory.peak_bytes} bytes at {memory.where}, the limit is {limit}")
    # priced from its schedule, as the plan is: ticks round, and would make equal plans differ
    cost = price(model.problem.program, schedule, model.fusion, model.prices, model.problem.trips)
    seconds = cost.step_s + model.memory_price_s(assignment)
    return PricedBaseline(BaselineCost(strategy.name, seconds, memory.peak_bytes), assignment, timed_out)


def _within(
    model: Model, allowed: Sequence[np.ndarray], limit: int | None, deadline: float | None
) -> tuple[tuple[tuple[int, ...], Schedule, MemoryProfile] | str, str]:
    """The baseline's best assignment in a network with this limit, or why there is none; and what ended the search."""
    from autoshard.solver import solve

    network = restrict(model.with_limit(limit), allowed)
    left = None if deadline is None else max(LEAST_S, deadline - time.monotonic())
    solution = solve(network, effort=EFFORT, gap=ACCEPTED_GAP, time_limit_s=left)
    stopped = str(solution.stats.get("stopped"))
    if solution.assignment is None:
        return name_nodes(model, solution.reason or f"no assignment was found ({solution.status})"), stopped
    assignment = tuple(int(keep[choice]) for keep, choice in zip(allowed, solution.assignment, strict=True))
    schedule = model.schedule(assignment)
    return (assignment, schedule, model.simulate(schedule)), stopped


def restrict(network: CostNetwork, allowed: Sequence[np.ndarray]) -> CostNetwork:
    """The network with only some strategies per node (indices into the old ones)."""
    edges = tuple(Edge(e.first, e.second, e.costs[np.ix_(allowed[e.first], allowed[e.second])]) for e in network.edges)
    usages = tuple(
        tuple(Usage(u.start, u.stop, u.amounts[keep]) for u in us)
        for us, keep in zip(network.usages, allowed, strict=False)
    )
    facets = tuple(None if f is None else f[keep] for f, keep in zip(network.facets, allowed, strict=False))
    costs = tuple(c[keep] for c, keep in zip(network.costs, allowed, strict=True))
    return CostNetwork(costs, edges, usages, network.usage_limit, facets)


def allowed_states(model: Model, strategy: NamedStrategy, roles: Roles) -> list[np.ndarray]:
    """Per node of the model's network the states that the strategy leaves."""
    program, mesh = model.problem.program, model.problem.mesh
    stated = statements(strategy, program, mesh.mesh, roles)
    switched, forms = with_switches(program, stated.switches)
    spread = dict(stated.spread) | {forms[v]: s for v, s in stated.switches.items()}
    contested = frozenset(a for axis in strategy.switching for a in mesh.atoms_of[axis])
    placing = _Placing(mesh, propagate(switched, mesh.mesh, spread).values, contested)
    ops = switched.ops
    classes: list[np.ndarray | None] = [None] * model.repeats.network.n_nodes
    for index, node in enumerate(model.collected.nodes):
        kept = model.encoded.states[index]
        cls = int(model.repeats.class_of[index])
        keep = np.arange(len(kept))
        if node.kind is NodeKind.OP:
            assert node.op is not None
            keep = _placed(model, index, *placing.of(ops[node.op]))
        elif node.kind is NodeKind.INPUT and node.value is not None and node.value in stated.pins:
            pin = stated.pins[node.value]
            keep = np.array([k for k, s in enumerate(kept) if satisfies(node.layouts[s], pin, mesh)], np.int64)
        held = classes[cls]
        both = keep if held is None else np.intersect1d(held, keep)
        classes[cls] = both if held is None or len(both) else held
    return [c if c is not None else np.zeros(0, np.int64) for c in classes]


class _Placing:
    """Where ops run, from the shardings of their tensors. Remembers what it has worked out."""

    def __init__(self, mesh: AtomMesh, values: Mapping[int, TensorSharding], contested: frozenset[int]) -> None:
        self._mesh = mesh
        self._contested = contested
        self._specs = {v: to_spec(s, mesh.mesh, 0) for v, s in values.items()}
        self._known: dict[object, tuple[list[list[int]], frozenset[int]]] = {}

    def of(self, op: Op) -> tuple[list[list[int]], frozenset[int]]:
        """(atoms per factor, atoms left open).

        An atom goes to the factor that more than half of the tensors with this factor have it on. An atom that some
        tensors have, and none of the factors gets, is open: those tensors disagree and the solver decides. So is an
        atom of an axis that switches where tensors have it on different factors: there the switch happens.
        """
        assert op.rule is not None
        specs = tuple(self._specs.get(v) for v in (*op.operands, *op.results))
        key = (op.rule, specs)
        if key not in self._known:
            self._known[key] = self._vote(op.rule, specs)
        return self._known[key]

    def _vote(self, rule, specs: Sequence[Spec | None]) -> tuple[list[list[int]], frozenset[int]]:
        sizes = rule.factor_sizes
        having = [0] * len(sizes)
        votes: dict[tuple[int, int], int] = {}
        orders: list[list[int]] = [[] for _ in sizes]
        seen: set[int] = set()
        for mapping, spec in zip((*rule.operands, *rule.results), specs, strict=True):
            if spec is None:
                continue
            for factor, sharding in project(mapping, spec, sizes).factors.items():
                having[factor] += 1
                atoms = self._atoms(sharding.axes)
                seen.update(atoms)
                orders[factor] += [a for a in atoms if a not in orders[factor]]
                for atom in atoms:
                    votes[atom, factor] = votes.get((atom, factor), 0) + 1
        chosen: dict[int, int] = {}
        for (atom, factor), count in sorted(votes.items()):
            if factor not in rule.shardable or 2 * count <= having[factor]:
                continue
            old = chosen.get(atom)
            if old is None or count / having[factor] > votes[atom, old] / having[old]:
                chosen[atom] = factor
        for atom in self._contested & set(chosen):
            if sum(1 for a, _ in votes if a == atom) > 1:
                del chosen[atom]
        placed = [[a for a in order if chosen.get(a) == f] for f, order in enumerate(orders)]
        return placed, frozenset(seen - set(chosen))

    def _atoms(self, refs) -> list[int]:
        found: list[int] = []
        for ref in refs:
            try:
                found += [a for a in self._mesh.atoms_for(axis_ref(ref, self._mesh.mesh)) if self._mesh.sizes[a] > 1]
            except ShardingError:  # a sub-axis finer than the atoms of this program
                break
        return found


def _placed(model: Model, index: int, wanted: list[list[int]], open_atoms: frozenset[int]) -> np.ndarray:
    """States of an op whose factors lie as wanted, open atoms anywhere; axes that cannot be had are dropped."""
    space = model.collected.nodes[index].space
    assert space is not None
    kept = {int(s): k for k, s in enumerate(model.encoded.states[index])}
    wanted = [list(atoms) for atoms in wanted]
    while True:
        if open_atoms:
            goal = tuple(map(tuple, wanted))
            states = [
                s
                for factors, of in space.by_factors.items()
                if tuple(tuple(a for a in f if a not in open_atoms) for f in factors) == goal
                for s in of
            ]
        else:
            states = space.by_factors.get(tuple(map(tuple, wanted)), [])
        found = sorted(kept[s] for s in states if s in kept)
        if found or not any(wanted):
            return np.array(found, np.int64)
        longest = max(range(len(wanted)), key=lambda f: (len(wanted[f]), f))
        wanted[longest].pop()
