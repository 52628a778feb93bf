"""The network of a planning problem, with all that baselines, solving and decoding share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from autoshard.constraints.groups import spread_pins
from autoshard.constraints.tied_outputs import own_outputs, padded_inputs
from autoshard.costmodels.machine import Machine
from autoshard.costs import liveness as liveness_model
from autoshard.costs.apart import fusion_on
from autoshard.costs.exposure import Exposure, Objective, Weights
from autoshard.costs.fusion import Fusion
from autoshard.costs.liveness import Liveness
from autoshard.costs.memory import MemoryProfile, live_bytes, simulate
from autoshard.costs.memory import holdings as held_under
from autoshard.costs.price import PlanCost
from autoshard.costs.pricing import StepPrices
from autoshard.costs.reshard import ReshardTables
from autoshard.deadline import Check, Deadline, no_check
from autoshard.formulation.border import price_border
from autoshard.formulation.collect import Analyses, Collected, Collector, StatedShardings
from autoshard.formulation.counts import Count, hold_counts, price_counts, with_counts
from autoshard.formulation.decode import decode
from autoshard.formulation.domains import Domains
from autoshard.formulation.encode import MEMORY_PRICE_S_PER_BYTE, Encoded, encode, price_nodes
from autoshard.formulation.equal import with_groups
from autoshard.formulation.fixed import Fixed, narrow
from autoshard.formulation.host import Amounts, check_host, hold_host, host_amounts, price_host, price_orders
from autoshard.formulation.kept import KeptForms, kept_forms
from autoshard.formulation.lifetimes import holdings
from autoshard.formulation.loose import Loose
from autoshard.formulation.memory import Chosen, Memory, in_units, leaves_something, left_by
from autoshard.formulation.quantities import Quantities
from autoshard.formulation.repeats import Repeats, find_repeats
from autoshard.formulation.restrict import restrict_nodes
from autoshard.garbage import uncollected
from autoshard.placements.partial import PartialReach
from autoshard.placements.space import OpSpace
from autoshard.planning.axis_orders import axis_orders, parts_apart
from autoshard.planning.conflicts import check_layouts, implied_pins
from autoshard.planning.heap import give_back
from autoshard.planning.problem import Problem
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule
from autoshard.program.ties import layout_ties
from autoshard.search_options import Progress
from autoshard.sharding.layout import AtomMesh
from autoshard.solver.network import CostNetwork, less_room
from autoshard.solver.solution import Solution
from autoshard.solver.work import Infeasible

PRICED_ENTRIES = 300_000
"""Most table entries of a network of all layers that is kept beside the quotient in which layers share decisions."""


_ADVICE = "raise it, use fewer mesh axes, or write repeated layers as a scan"
_LONGER = 1e4
"""How many times longer ticks are where no plan is short enough to be counted in them."""
_LOOK_AGAIN = 0.9
"""The bytes that plans hold are worked out again when the limit leaves at most this share of the choices before."""


@dataclass(frozen=True)
class Shared:
    """What all models of one program on one machine have in common, whatever is stated: analyses, placements, prices.

    orders, apart: further orders of axes within a dimension that the placements include, and parts of axes that are
    axes of their own (see `planning.axis_orders`).
    """

    program: Program
    mesh: AtomMesh
    machine: Machine
    orders: tuple[tuple[str, ...], ...]
    apart: tuple[tuple[int, ...], ...]
    fusion: Fusion
    liveness: Liveness
    reach: PartialReach
    prices: StepPrices
    objective: Objective
    weights: Weights
    exposure: Exposure
    tables: ReshardTables
    spaces: dict[object, OpSpace]

    @staticmethod
    def of(problem: Problem) -> "Shared":
        """The analyses and empty price tables for the program of a problem."""
        prices, apart = StepPrices(problem.machine, problem.mesh), parts_apart(problem)
        exposure = Exposure.of(problem.objective, problem.program, problem.machine, problem.weights)
        return Shared(
            problem.program, problem.mesh, problem.machine, axis_orders(problem), apart,
            *_analysed(problem.program, problem.mesh, problem.machine), prices, problem.objective, problem.weights,
            exposure, ReshardTables(problem.mesh, prices, exposure, _lengths, apart), {},
        )  # fmt: skip

    def weighing(self, weights: Weights) -> "Shared":
        """The same for models that count a weighted mean."""
        exposure = replace(self.exposure, weights=weights)
        tables = ReshardTables(self.mesh, self.prices, exposure, _lengths, self.apart)
        return replace(self, weights=weights, exposure=exposure, tables=tables)

    def fits(self, problem: Problem) -> bool:
        """Whether a model of this problem may use them: the same program, machine, mesh and orders."""
        same = self.program is problem.program and self.machine is problem.machine
        same = same and (self.objective, self.weights) == (problem.objective, problem.weights)
        return (
            same
            and self.mesh == problem.mesh
            and (self.orders, self.apart) == (axis_orders(problem), parts_apart(problem))
        )


@dataclass(frozen=True)
class Model:
    """A problem and its network, with all that baselines, solving and decoding share.

    fusion, liveness, prices: analyses of the program and prices on its machine. collected, encoded, repeats: the
    decisions, the network of all layers, and the quotient that is solved. ties: output slot -> input value that the
    output replaces. counts, on_host: amounts that stated limits other than the memory limit are about. fixed:
    placements that its plans must have.
    """

    problem: Problem
    shared: Shared
    fusion: Fusion
    liveness: Liveness
    prices: StepPrices
    collected: Collected
    encoded: Encoded
    repeats: Repeats
    ties: dict[int, int]
    counts: tuple[Count, ...] = ()
    on_host: Amounts = ()
    fixed: tuple[Fixed, ...] = ()
    _memory: list[Memory] = field(default_factory=list, init=False, repr=False, compare=False)
    _kept: list[KeptForms] = field(default_factory=list, init=False, repr=False, compare=False)

    def with_limit(self, limit: int | None, taken: np.ndarray | None = None) -> CostNetwork:
        """The network within so many bytes, within stated counts of reshards and within the limit on host memory.
        taken: bytes at every moment that no decision may have."""
        network = self.repeats.network if taken is None else less_room(self.repeats.network, taken)
        network = hold_counts(network, self.counts, limit)
        return hold_host(network, self.on_host, self.problem.host_limit)

    @property
    def without_device_memory(self) -> CostNetwork:
        """The network within stated counts of reshards and the limit on host memory, whatever a device holds."""
        network = replace(self.repeats.network, usages=(), usage_limit=None)
        return hold_host(hold_counts(network, self.counts, None), self.on_host, self.problem.host_limit)

    @property
    def memory(self) -> Memory:
        """The bytes that the plans of this model hold, as quantities that depend on its decisions.

        They are unknown for choices that the memory limit rules out. Raises `Infeasible` where it rules out all.
        """
        return self.work_out_memory(_nothing)

    def work_out_memory(self, check: Callable[[], None]) -> Memory:
        """`memory`, worked out where it is not known yet. check: called every now and then; may raise to stop."""
        if not self._memory:
            self._memory.append(self._made_memory(check))
        return self._memory[0]

    def _made_memory(self, check: Callable[[], None]) -> Memory:
        base, limit = self.repeats.network, self.problem.memory_limit
        network = replace(base, usage_limit=limit)
        left = left_by(network)
        while True:
            quantities = Quantities(left, check)
            held = holdings(
                self.problem.program, self.fusion, self.liveness, self.collected, self.encoded, self.repeats,
                self.problem.mesh, self.problem.machine.profile.memory_tile, quantities,
            )  # fmt: skip
            memory = Memory(base, held, quantities)
            network = replace(network, usages=memory.own)
            try:
                before, left = left, left_by(network)
            except Infeasible:  # the search of the network that knows this proves it
                left = before = left
            if _states(left) > _LOOK_AGAIN * _states(before):
                quantities.check = _nothing
                return memory

    @property
    def kept(self) -> KeptForms:
        """What forms hold longer than the network itself counts, which `memory` has too."""
        if not self._kept:
            analyses = self.fusion, self.liveness, self.collected, self.encoded, self.repeats
            tile = self.problem.machine.profile.memory_tile
            self._kept.append(kept_forms(self.problem.program, *analyses, self.problem.mesh, tile))
        return self._kept[0]

    def within(self, limit: int, chosen: Chosen) -> CostNetwork:
        """The network within so many bytes, with nodes for these excesses of `memory` behind its own; where it is too
        large for those, with nodes for what is `kept`."""
        if self.repeats.network.is_factored:  # in bytes, in which prices are handed on
            network = replace(self.kept.network, usage_limit=limit)
        else:
            network = in_units(self.memory.network(chosen), limit)
        network = hold_counts(network, self.counts, network.usage_limit)
        return hold_host(network, self.on_host, self.problem.host_limit)

    def at_prices(self, prices: Sequence[int]) -> CostNetwork:
        """The network without memory limit, in which reshards cost ticks in the place of being counted."""
        network = price_counts(self.repeats.network, self.counts, prices)
        return hold_host(network, self.on_host, self.problem.host_limit)

    def without_memory(self, solution: Solution) -> Solution:
        """A solution of `within` as one of the network without nodes for memory."""
        n = self.repeats.network.n_nodes
        best = None if solution.assignment is None else solution.assignment[:n]
        likely = None if solution.likely is None else solution.likely[:n]
        return replace(solution, assignment=best, earlier=tuple(a[:n] for a in solution.earlier), likely=likely)

    def seconds(self, cost: PlanCost) -> float:
        """Seconds of a priced schedule as the objective counts them, without the minute price on memory."""
        return self.shared.exposure.seconds(cost, self.prices)

    def network_s(self, cost: PlanCost) -> float:
        """Seconds of a priced schedule as the network counts them: the objective, or what is never more than it."""
        return self.shared.exposure.mean_s(cost, self.prices)

    def schedule(self, assignment: Sequence[int]) -> Schedule:
        """The schedule of an assignment of the quotient network."""
        full = self.repeats.expand(assignment)
        return decode(self.collected, self.encoded, self.problem.program, self.problem.mesh, full)

    def simulate(self, schedule: Schedule) -> MemoryProfile:
        """What one device holds under a schedule; the judge of memory limits."""
        return simulate(self.problem.program, schedule, self.liveness, self.problem.machine.profile.memory_tile)

    def live(self, assignment: Sequence[int]) -> np.ndarray:
        """The bytes that one device holds at every moment under the plan of an assignment."""
        tile = self.problem.machine.profile.memory_tile
        held = held_under(self.problem.program, self.schedule(assignment), self.liveness, tile)
        return live_bytes(held, self.liveness)

    def memory_price_s(self, assignment: Sequence[int]) -> float:
        """The part of an assignment's cost that is the minute price on held bytes."""
        full = self.repeats.expand(assignment)
        held = sum(float(priced[choice]) for priced, choice in zip(self.encoded.priced, full, strict=True))
        return held * MEMORY_PRICE_S_PER_BYTE


def _states(left: Sequence[np.ndarray]) -> int:
    return sum(int(states.sum()) for states in left)


def _nothing() -> None:
    """No check: what is made is made to its end."""


@uncollected()
def build_model(
    problem: Problem,
    progress: Progress | None = None,
    *,
    fixed: Sequence[Fixed] = (),
    shared: Shared | None = None,
    whole: bool = False,
    tick_s: float | None = None,
    deadline: Deadline | None = None,
) -> Model:
    """Enumerate placements and layouts, price them, and encode them as a network.

    Raises `InfeasibleError` where a pin leaves a value without any layout. fixed: placements that the model's plans
    must have (see `planning.stages`). shared: from a model of the same program on the same machine, to save time.
    whole: keep the edges of `encoded` however many there are; otherwise a large network of repeated layers has edges in
    its quotient only. tick_s: of the network, where it is to be that of another. deadline: when it ends with
    `OutOfTimeError`, however much is built by then.
    """
    check = no_check if deadline is None else partial(_check, deadline)
    say = progress or (lambda text: None)
    program, mesh = problem.program, problem.mesh
    ties = layout_ties(program)
    check_layouts(program, mesh, problem.statements, ties, axis_orders(problem), parts_apart(problem), problem.later)
    if shared is None or not shared.fits(problem):
        shared = Shared.of(problem)
    fusion, liveness, prices = shared.fusion, shared.liveness, shared.prices
    say("enumerating states")
    analyses = Analyses(fusion, liveness, shared.exposure)
    collected = Collector(
        program, mesh, analyses, stated=_by_target(problem), ties=ties,
        domains=Domains(mesh, shared.orders, shared.spaces, shared.apart), trips=problem.trips, reach=shared.reach,
        tile=problem.machine.profile.memory_tile, check=check,
        as_used=not problem.counting,
    ).run()  # fmt: skip
    restrict_nodes(collected, program, mesh, problem.restrictions, ties)
    for placements in fixed:
        narrow(collected, program, placements)
    say("pricing ops and reshards")
    price_nodes(collected, program, mesh, fusion, prices, shared.exposure, problem.trips)
    price_host(collected, program, mesh, ties, prices, shared.exposure)
    price_orders(collected, program, mesh, ties, prices, shared.exposure)
    price_border(collected, program, mesh, prices, shared.exposure)
    encoded = _encoded(problem, collected, shared.tables, ties, tick_s, check)
    encoded, counts = with_counts(encoded, collected, program, mesh, problem.counting, shared.tables, check)
    # a limit counts every single reshard, so layers cannot share decisions where reshards are counted
    repeats = find_repeats(program, collected, encoded, enabled=problem.share_repeats and not counts)
    check("folding repeated layers", 1, 1)
    on_host = host_amounts(collected, encoded, repeats, program, mesh, ties)
    if repeats.shared and not whole and encoded.entries > PRICED_ENTRIES:
        encoded = encoded.without_edges()
        give_back()
    if problem.host_limit is not None:
        check_host(on_host, problem.host_limit)
    return Model(
        problem, shared, fusion, liveness, prices, collected, encoded, repeats, ties, counts, on_host, tuple(fixed)
    )


def _encoded(
    problem: Problem,
    collected: Collected,
    tables: ReshardTables,
    ties: dict[int, int],
    tick_s: float | None,
    check: Check,
) -> Encoded:
    """The network, in ticks so long that what takes nearly forever is impossible only where there are other choices.

    Where nothing is left without these choices, every plan makes one of them, and costs so much that ticks may be
    longer.
    """
    while True:
        encoded = encode(collected, problem.program, problem.mesh, tables, tick_s=tick_s, check=check)
        encoded = with_groups(encoded, collected, problem.program, problem.mesh, problem.groups, ties)
        if not encoded.too_long or encoded.network.is_factored or leaves_something(encoded.network):
            return encoded
        tick_s = encoded.tick_s * _LONGER


def _lengths(starts: Any, targets: Any, lengths: Any) -> Any:
    """All shortest paths of a graph, by code that is compiled: loaded where it is needed."""
    from autoshard.formulation.shortest import all_lengths

    return all_lengths(starts, targets, lengths)


def _check(deadline: Deadline, doing: str, done: int, of: int) -> None:
    """Raise `OutOfTimeError` where the deadline is over."""
    if deadline.passed:
        deadline.check(f"building the network of decisions ({doing}: {done} of {of})", _ADVICE)


def collect_loosely(problem: Problem) -> tuple[Loose, Liveness]:
    """The decisions of a problem with none of its statements in force, for judging subsets of them."""
    program, mesh = problem.program, problem.mesh
    ties, domains = layout_ties(program), Domains(mesh, axis_orders(problem), apart=parts_apart(problem))
    fusion, liveness, reach = _analysed(program, mesh, problem.machine)
    analyses = Analyses(fusion, liveness, Exposure(problem.machine))
    collected = Collector(
        program, mesh, analyses, stated=_by_target(problem), ties=ties, domains=domains, trips=problem.trips,
        reach=reach, tile=problem.machine.profile.memory_tile, loose=True,
    ).run()  # fmt: skip
    return Loose(program, mesh, collected, ties, domains, problem.statements), liveness


def _analysed(program: Program, mesh: AtomMesh, machine: Machine) -> tuple[Fusion, Liveness, PartialReach]:
    fusion = fusion_on(program, machine.profile)
    reach = PartialReach(program, mesh)
    return fusion, liveness_model.analyse(program, fusion), reach


def _by_target(problem: Problem) -> StatedShardings:
    """Shardings that hold for values and for output slots: from pins, groups and restrictions.

    What groups and restrictions demand of an output that takes the layout of an input, they demand of that input.
    """
    program = problem.program
    values: dict[int, list[Any]] = {}
    outputs: dict[int, list[Any]] = {}
    pins = (*problem.pins, *(pin for r in problem.restrictions for pin in implied_pins(r, program)))
    for pin in (*pins, *spread_pins(pins, problem.groups, program)):
        for value in pin.values:
            _once(values.setdefault(value, []), pin.sharding)
        for slot in pin.outputs:
            _once(outputs.setdefault(slot, []), pin.sharding)
    own = own_outputs((*problem.pins, *problem.later))
    padded = padded_inputs(problem.pins, problem.groups, program, problem.mesh)
    for slot, value in layout_ties(program).items():
        if slot in outputs and slot not in own and value not in padded:
            for sharding in outputs.pop(slot):
                _once(values.setdefault(value, []), sharding)
    return StatedShardings(values, outputs, own)


def _once(listed: list[Any], sharding: Any) -> None:
    if sharding not in listed:
        listed.append(sharding)
