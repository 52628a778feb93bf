"""Every plan of a tiny program, simulated: which placements hold beside each other, and what the cheapest plan costs.

The lexicographic meaning of priorities is written down here once more, without the stages, the keeping of placements
and the solver: plans are listed, and filtered by pins, placements and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from every_choice import has, holds

from autoshard.constraints import MatchedPin
from autoshard.formulation.fixed import Cut, Fixed
from autoshard.formulation.model import NodeKind
from autoshard.plan_record.parts import StageRecord
from autoshard.planning import Problem, StagePlan, build_model
from autoshard.solver.network import IMPOSSIBLE

FIELDS = ("values", "ops", "forms", "outputs")
Spot = tuple[str, int, int, int]
"""An atom at a place: field of `Fixed`, key, factor or dimension, atom."""


class TooManyError(Exception):
    """There are more plans than should be listed."""


@dataclass(frozen=True)
class Chain:
    """Atoms that a factor or dimension has in this order."""

    what: str
    key: int
    index: int
    atoms: tuple[int, ...]


class EveryAssignment:
    """All plans of a program without any pin, in the order of their costs; peaks are simulated when they are asked.

    Dimensions have the orders of axes that the pins have or leave open: they are there, but on no value.
    """

    def __init__(self, problem: Problem, most: int) -> None:
        self.problem = problem
        nowhere = tuple(replace(pin, values=(), outputs=()) for pin in problem.pins)
        self.model = build_model(replace(problem, pins=nowhere, memory_limit=None))
        network = self.model.repeats.network
        assert not self.model.repeats.shared
        shape = [len(c) for c in network.costs]
        if prod(shape) > most:
            raise TooManyError(prod(shape))
        grid = np.indices(shape).reshape(len(shape), -1)
        total = np.zeros(grid.shape[1], np.int64)
        fine = np.ones(grid.shape[1], bool)
        tables = [(cost[grid[n]]) for n, cost in enumerate(network.costs)]
        tables += [edge.costs[grid[edge.first], grid[edge.second]] for edge in network.edges]
        for table in tables:
            fine &= table < IMPOSSIBLE
            total += np.where(table < IMPOSSIBLE, table, 0)
        order = np.flatnonzero(fine)
        order = order[np.argsort(total[order], kind="stable")]
        self.costs = total[order] * self.model.encoded.tick_s
        self.states = np.array([self.model.encoded.states[n][grid[n][order]] for n in range(len(shape))])
        self.assignments = grid[:, order].T
        self._peaks: dict[int, int] = {}
        self._where: dict[tuple[str, int], tuple[int, list[Cut]]] = {}
        nodes = self.model.collected.nodes
        names = list(problem.program.output_names)
        for n, node in enumerate(nodes):
            layouts = [layout.dims for layout in node.layouts]
            if node.kind is NodeKind.OP and node.space is not None and node.op is not None:
                self._where["ops", node.op] = n, [p.factors for p in node.space.placements]
            elif node.kind is NodeKind.OUTPUT:
                self._where["outputs", names.index(node.label)] = n, layouts
            elif node.value is not None:
                self._where["values" if node.kind is NodeKind.INPUT else "forms", node.value] = n, layouts

    def peak(self, row: int) -> int:
        if row not in self._peaks:
            schedule = self.model.schedule(tuple(int(k) for k in self.assignments[row]))
            self._peaks[row] = self.model.simulate(schedule).peak_bytes
        return self._peaks[row]

    def under(self, pins: Sequence[MatchedPin]) -> np.ndarray:
        """Whether the statements hold, by plan."""
        out = np.ones(len(self.costs), bool)
        mesh = self.problem.mesh
        for pin in pins:
            asked = [("values", v) for v in pin.values] + [("outputs", k) for k in pin.outputs]
            for place in asked:
                n, _ = self._where[place]
                fits = np.array([holds(lay, pin.sharding, mesh) for lay in self.model.collected.nodes[n].layouts])
                out &= fits[self.states[n]]
        return out

    def having(self, chains: Sequence[Chain]) -> np.ndarray:
        """Whether the placements are there, by plan."""
        out = np.ones(len(self.costs), bool)
        for chain in chains:
            n, cuts = self._where[chain.what, chain.key]
            fits = np.array([has(cut[chain.index : chain.index + 1], [chain.atoms]) for cut in cuts])
            out &= fits[self.states[n]]
        return out

    def decides(self, spot: Spot) -> bool:
        return spot[:2] in self._where

    def cheapest(self, which: np.ndarray, limit: int | None) -> float | None:
        """Seconds of the cheapest of these plans within the limit; None where there is none."""
        for row in np.flatnonzero(which).tolist():
            if limit is None or self.peak(row) <= limit:
                return float(self.costs[row])
        return None


def spots(fixed: Fixed) -> list[Spot]:
    """The order in which placements are kept."""
    return [
        (what, key, index, atom)
        for what in FIELDS
        for key in sorted(getattr(fixed, what))
        for index, atoms in enumerate(getattr(fixed, what)[key])
        for atom in atoms
    ]


def chains(fixed: Fixed, kept: Sequence[Spot]) -> list[Chain]:
    """Placements as far as their spots are kept."""
    chosen = set(kept)
    return [
        Chain(what, key, index, tuple(a for a in atoms if (what, key, index, a) in chosen))
        for what in FIELDS
        for key, cut in getattr(fixed, what).items()
        for index, atoms in enumerate(cut)
    ]


@dataclass
class Lexicographic:
    """The meaning of stages: what is kept of what each wants, and what its cheapest plan costs then."""

    plans: EveryAssignment
    limit: int | None

    def __post_init__(self) -> None:
        self.all_hold = self.plans.under(self.plans.problem.pins)
        self.chains: list[Chain] = []
        self.for_memory: set[Spot] = set()  # dropped ones that some plan beyond the limit has

    def keep(self, wanted: Fixed) -> list[Spot]:
        """Of what is wanted, one after the other, what some plan has beside all that is kept."""
        here = self.all_hold & self.plans.having(self.chains)
        kept: list[Spot] = []
        for spot in spots(wanted):
            with_it = here & self.plans.having(chains(wanted, [*kept, spot])) if self.plans.decides(spot) else here
            if self.plans.cheapest(with_it, self.limit) is not None:
                kept.append(spot)
            elif with_it.any():
                self.for_memory.add(spot)
        kept = [spot for spot in kept if self.plans.decides(spot)]
        self.chains += [c for c in chains(wanted, kept) if c.atoms]
        return kept

    def optimum(self, pins: Sequence[MatchedPin], also: Sequence[Chain] = (), *, free: bool = False) -> float | None:
        """Seconds of the cheapest plan with all that is kept; `free`: whatever it holds."""
        which = self.plans.under(pins) & self.plans.having([*self.chains, *also])
        return self.plans.cheapest(which, None if free else self.limit)


def compare(
    problem: Problem, stages: Sequence[StageRecord], plans: Sequence[StagePlan], most: int, slack: float
) -> None:
    """Every stage of a decision against the meaning written down here."""
    meaning = Lexicographic(EveryAssignment(problem, most), problem.memory_limit)
    known: set[Spot] = set()
    for number, (stage, plan) in enumerate(zip(stages, plans, strict=True)):
        last = number == len(plans) - 1
        pins = problem.pins if last else plan.pins
        told = [entry for entry in stage.relaxed if entry["source"] == "propagated"]
        wanted = {spot for spot in spots(plan.given) if meaning.plans.decides(spot)}
        dropped = {spot for entry in told for spot in spots_of(entry, problem)}
        assert all(entry["proved"] for entry in stage.relaxed), "programs as small as these are judged exactly"
        kept = set(meaning.keep(plan.given))
        assert wanted - kept == (dropped | known) & wanted, (
            number,
            wanted - kept,
            dropped,
            known,
            "what the statements propagate",
        )
        known |= dropped
        best = meaning.optimum(pins)
        for entry in told:
            (spot,) = spots_of(entry, problem)
            assert (entry["why"] == "memory") is (spot in meaning.for_memory), (number, entry)
            if entry["price_s"] is not None:
                axes = tuple(problem.mesh.names.index(a) for a in entry["axes"])
                there = meaning.optimum(pins, [Chain(*spot[:3], axes)], free=True)
                assert best is not None and there is not None, (number, entry)
                assert abs(entry["price_s"] - (there - best)) <= slack, (number, entry)
        assert best is not None
        assert abs(best - stage.cost_s) <= slack, (number, best, stage.cost_s)
        assert stage.status == "optimal" and stage.bound_s <= best + slack
        if not last:
            chosen, lost = optimum_of(stage, problem)
            everything = chains(chosen, spots(chosen))
            same = meaning.optimum(pins, everything)
            assert same is not None and abs(same - best) <= slack, (number, "the optimum has what is said of it")
            kept = set(meaning.keep(chosen))
            assert set(spots(chosen)) - kept == lost, (number, "what the optimum chose")


def spots_of(entry, problem: Problem) -> list[Spot]:  # type: ignore[no-untyped-def]
    """What an entry of ``relaxed`` speaks of."""
    what = {"inputs": "values", "shared": "forms"}.get(entry["what"], entry["what"])
    atom = problem.mesh.names.index(entry["axes"][-1])
    return [(what, int(key), entry["on"], atom) for key in entry["keys"]]


def optimum_of(stage: StageRecord, problem: Problem) -> tuple[Fixed, set[Spot]]:
    """What a stage's optimum placed, and what of it was not kept."""
    names = problem.mesh.names
    fields = {"inputs": "values", "ops": "ops", "shared": "forms", "outputs": "outputs"}
    found: dict[str, dict[int, list[list[int]]]] = {
        field: {int(key): [[names.index(a) for a in atoms] for atoms in cut] for key, cut in stage.placed[name].items()}
        for name, field in fields.items()
    }
    lost: set[Spot] = set()
    for entry in stage.relaxed:
        if entry["source"] == "chosen":
            for what, key, index, atom in spots_of(entry, problem):
                rank = _rank(problem, what, key)
                cut = found[what].setdefault(key, [[] for _ in range(rank)])
                before = [names.index(a) for a in entry["axes"][:-1]]
                at = cut[index].index(before[-1]) + 1 if before else 0
                while at < len(cut[index]) and (what, key, index, cut[index][at]) in lost:
                    at += 1
                cut[index].insert(at, atom)
                lost.add((what, key, index, atom))
    return Fixed(**{f: {k: tuple(map(tuple, cut)) for k, cut in cuts.items()} for f, cuts in found.items()}), lost


def _rank(problem: Problem, what: str, key: int) -> int:
    program = problem.program
    if what == "ops":
        rule = program.ops[key].rule
        assert rule is not None
        return len(rule.factor_sizes)
    return program.type_of(program.body.results[key] if what == "outputs" else key).rank
