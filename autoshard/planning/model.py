"""A planning problem, and the network that is made of it: everything that baselines, solving and decoding share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from autoshard.constraints import MatchedGroup, MatchedPin, Restriction
from autoshard.constraints.groups import spread_pins
from autoshard.costmodels.machine import Machine
from autoshard.costs import fusion as fusion_model
from autoshard.costs import liveness as liveness_model
from autoshard.costs.fusion import Fusion
from autoshard.costs.liveness import Liveness
from autoshard.costs.memory import MemoryProfile, simulate
from autoshard.costs.pricing import StepPrices
from autoshard.costs.reshard import ReshardTables
from autoshard.formulation.collect import Collected, Collector, StatedShardings
from autoshard.formulation.counts import Count, hold_counts, with_counts
from autoshard.formulation.decode import decode
from autoshard.formulation.domains import Domains
from autoshard.formulation.encode import MEMORY_PRICE_S_PER_BYTE, Encoded, encode, price_nodes
from autoshard.formulation.equal import with_groups
from autoshard.formulation.fixed import Fixed, narrow
from autoshard.formulation.host import Amounts, check_host, hold_host, host_amounts, price_host, price_orders
from autoshard.formulation.lifetimes import holdings
from autoshard.formulation.loose import Loose
from autoshard.formulation.memory import Chosen, Memory, in_units, left_by
from autoshard.formulation.quantities import Quantities
from autoshard.formulation.repeats import Repeats, find_repeats
from autoshard.formulation.restrict import restrict_nodes
from autoshard.placements.atoms import choose_atoms, stated_splits
from autoshard.placements.partial import PartialReach
from autoshard.placements.space import OpSpace
from autoshard.planning.conflicts import check_layouts, implied_pins
from autoshard.planning.heap import give_back
from autoshard.planning.options import Progress
from autoshard.program.program import Program
from autoshard.program.schedule import Schedule
from autoshard.program.ties import layout_ties
from autoshard.sharding.layout import AtomMesh
from autoshard.sharding.mesh import Mesh
from autoshard.solver.network import CostNetwork
from autoshard.solver.solution import Solution

PRICED_ENTRIES = 300_000
"""Networks of all layers up to this many table entries are kept beside those in which layers share."""


_LOOK_AGAIN = 0.9
"""What plans hold is worked out again when the memory limit leaves no more than this part of the choices before."""


@dataclass(frozen=True)
class Problem:
    """One planning problem: a program on a machine under hard statements.

    host_limit: bytes that the host may hold for each device. device_limit: the memory limit is what the device has room
    for; nobody stated it.
    ties: output slot -> input value that the output replaces (donated state); trips: of while loops whose count is
    unknown.
    """

    program: Program
    mesh: AtomMesh
    machine: Machine
    pins: tuple[MatchedPin, ...] = ()
    memory_limit: int | None = None
    trips: int = 1
    share_repeats: bool = True
    groups: tuple[MatchedGroup, ...] = ()
    restrictions: tuple[Restriction, ...] = ()
    host_limit: int | None = None
    device_limit: bool = False

    @property
    def statements(self) -> tuple[MatchedPin | MatchedGroup | Restriction, ...]:
        """All but the memory limit, in one order."""
        return (*self.pins, *self.groups, *self.restrictions)

    @staticmethod
    def make(
        program: Program,
        mesh: Mesh,
        machine: Machine,
        *,
        pins: Sequence[MatchedPin] = (),
        memory_limit: int | None = None,
        sub_axes: Mapping[str, Sequence[int]] | None = None,
        trips: int = 1,
        share_repeats: bool = True,
        groups: Sequence[MatchedGroup] = (),
        restrictions: Sequence[Restriction] = (),
        host_limit: int | None = None,
        device_limit: bool = False,
    ) -> "Problem":
        stated = [pin.sharding for pin in pins] + [s for r in restrictions for s in r.shardings]
        splits = {**stated_splits(stated, mesh), **(sub_axes or {})}
        atoms = choose_atoms(program, mesh, splits)
        return Problem(
            program, atoms, machine, tuple(pins), memory_limit, trips, share_repeats, tuple(groups),
            tuple(restrictions), host_limit, device_limit,
        )  # fmt: skip


@dataclass(frozen=True)
class Shared:
    """What models of one program on one machine have in common, whatever is stated: analyses, strategies, prices.

    orders: further orders of axes within a dimension that the strategies know of.
    """

    program: Program
    mesh: AtomMesh
    machine: Machine
    orders: tuple[tuple[str, ...], ...]
    fusion: Fusion
    liveness: Liveness
    reach: PartialReach
    prices: StepPrices
    tables: ReshardTables
    spaces: dict[object, OpSpace]

    @staticmethod
    def of(problem: Problem) -> "Shared":
        prices = StepPrices(problem.machine, problem.mesh)
        return Shared(
            problem.program, problem.mesh, problem.machine, _axis_orders(problem),
            *_analysed(problem.program, problem.mesh), prices, ReshardTables(problem.mesh, prices), {},
        )  # fmt: skip

    def fits(self, problem: Problem) -> bool:
        same = self.program is problem.program and self.machine is problem.machine
        return same and self.mesh == problem.mesh and self.orders == _axis_orders(problem)


@dataclass(frozen=True)
class Model:
    """A problem made into a network: everything that baselines, solving and decoding share."""

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

    def with_limit(self, limit: int | None) -> CostNetwork:
        """The network within so many bytes, and within stated counts of reshards and bytes on the host."""
        network = hold_counts(self.repeats.network, self.counts, limit)
        return hold_host(network, self.on_host, self.problem.host_limit)

    @cached_property
    def memory(self) -> Memory:
        """What the plans of this model hold, as quantities that depend on its decisions.

        Nothing is said of choices that the memory limit rules out. Raises `Infeasible` where it rules out all.
        """
        base, limit = self.repeats.network, self.problem.memory_limit
        network, open_ = replace(base, usage_limit=limit), sum(map(len, base.costs))
        while True:
            left = left_by(network)
            quantities = Quantities(left)
            held = holdings(
                self.problem.program, self.fusion, self.liveness, self.collected, self.encoded, self.repeats,
                self.problem.mesh, self.problem.machine.profile.memory_tile, quantities,
            )  # fmt: skip
            memory = Memory(base, held, quantities)
            before, open_ = open_, sum(int(states.sum()) for states in left)
            if open_ > _LOOK_AGAIN * before:
                return memory
            network = replace(network, usages=memory.own)

    def within(self, limit: int, chosen: Chosen) -> CostNetwork:
        """The network within so many bytes, with nodes for these excesses of `memory` behind its own."""
        network = in_units(self.memory.network(chosen), limit)
        network = hold_counts(network, self.counts, network.usage_limit)
        return hold_host(network, self.on_host, self.problem.host_limit)

    def without_memory(self, solution: Solution) -> Solution:
        """A solution of `within` as one of the network without nodes for excesses."""
        n = self.repeats.network.n_nodes
        best = None if solution.assignment is None else solution.assignment[:n]
        return replace(solution, assignment=best, earlier=tuple(a[:n] for a in solution.earlier))

    def schedule(self, assignment: Sequence[int]) -> Schedule:
        full = self.repeats.expand(assignment)
        return decode(self.collected, self.encoded, self.problem.program, self.problem.mesh, full)

    def simulate(self, schedule: Schedule) -> MemoryProfile:
        """What one device holds under a schedule; the judge of memory limits."""
        return simulate(self.problem.program, schedule, self.liveness, self.problem.machine.profile.memory_tile)

    def memory_price_s(self, assignment: Sequence[int]) -> float:
        """The part of an assignment's cost that is the minute price on held bytes."""
        full = self.repeats.expand(assignment)
        held = sum(float(priced[choice]) for priced, choice in zip(self.encoded.priced, full, strict=True))
        return held * MEMORY_PRICE_S_PER_BYTE


def build_model(
    problem: Problem,
    progress: Progress | None = None,
    *,
    fixed: Sequence[Fixed] = (),
    shared: Shared | None = None,
    whole: bool = False,
) -> Model:
    """Enumerate, price and encode. Raises `InfeasibleError` where a pin leaves a value without any layout.

    fixed: placements that the model's plans have (see `planning.stages`). shared: of a model of the same program on the
    same machine, to save time.
    whole: keep the edges of `encoded` however many there are; else a large network of repeated layers has them in its
    quotient only.
    """
    say = progress or (lambda text: None)
    program, mesh = problem.program, problem.mesh
    ties = layout_ties(program)
    check_layouts(program, mesh, problem.statements, ties, _axis_orders(problem))
    if shared is None or not shared.fits(problem):
        shared = Shared.of(problem)
    fusion, liveness, prices = shared.fusion, shared.liveness, shared.prices
    say("enumerating strategies")
    collected = Collector(
        program, mesh, fusion, liveness, stated=_by_target(problem), ties=ties, axis_orders=shared.orders,
        trips=problem.trips, reach=shared.reach, tile=problem.machine.profile.memory_tile, spaces=shared.spaces,
    ).run()  # fmt: skip
    restrict_nodes(collected, program, mesh, problem.restrictions, ties)
    for placements in fixed:
        narrow(collected, program, placements)
    say("pricing ops and reshards")
    price_nodes(collected, program, mesh, fusion, prices, problem.trips)
    price_host(collected, program, mesh, ties, prices)
    price_orders(collected, program, mesh, ties, prices)
    encoded = encode(collected, program, mesh, shared.tables)
    encoded = with_groups(encoded, collected, program, problem.groups, ties)
    encoded, counts = with_counts(encoded, collected, program, mesh, problem.restrictions)
    # every reshard is counted for itself, so layers decide for themselves where reshards are counted
    repeats = find_repeats(program, collected, encoded, enabled=problem.share_repeats and not counts)
    on_host = host_amounts(collected, encoded, repeats, program, mesh, ties)
    if repeats.shared and not whole and encoded.entries > PRICED_ENTRIES:
        encoded = encoded.without_edges()
        give_back()
    if problem.host_limit is not None:
        check_host(on_host, problem.host_limit)
    return Model(problem, shared, fusion, liveness, prices, collected, encoded, repeats, ties, counts, on_host)


def collect_loosely(problem: Problem) -> tuple[Loose, Liveness]:
    """The decisions of a problem with none of its statements in force, ready for judging subsets of them."""
    program, mesh = problem.program, problem.mesh
    ties, orders = layout_ties(program), _axis_orders(problem)
    fusion, liveness, reach = _analysed(program, mesh)
    collected = Collector(
        program, mesh, fusion, liveness, stated=_by_target(problem), ties=ties, axis_orders=orders, trips=problem.trips,
        reach=reach, tile=problem.machine.profile.memory_tile, loose=True,
    ).run()  # fmt: skip
    return Loose(program, mesh, collected, ties, Domains(mesh, orders), problem.statements), liveness


def _analysed(program: Program, mesh: AtomMesh) -> tuple[Fusion, Liveness, PartialReach]:
    fusion = fusion_model.analyse(program)
    reach = PartialReach(program, mesh)
    copied = [v.id for v in program.values if v.id not in fusion.held and reach.get(v.id)]
    return fusion, liveness_model.analyse(program, fusion, copied=copied), reach


def _by_target(problem: Problem) -> StatedShardings:
    """Shardings that hold for values and for output slots: pins, what groups make of them, explicit replication."""
    program = problem.program
    values: dict[int, list[Any]] = {}
    outputs: dict[int, list[Any]] = {}
    pins = (*problem.pins, *(pin for r in problem.restrictions for pin in implied_pins(r, program)))
    for pin in (*pins, *spread_pins(pins, problem.groups, program)):
        for value in pin.values:
            _once(values.setdefault(value, []), pin.sharding)
        for slot in pin.outputs:
            _once(outputs.setdefault(slot, []), pin.sharding)
    return StatedShardings(values, outputs)


def _once(listed: list[Any], sharding: Any) -> None:
    if sharding not in listed:
        listed.append(sharding)


def _axis_orders(problem: Problem) -> tuple[tuple[str, ...], ...]:
    """Orders of mesh axes within a dimension that pins use and that are not the mesh's own."""
    names = problem.mesh.mesh.axis_names
    out: dict[tuple[str, ...], None] = {}
    stated = [pin.sharding for pin in problem.pins] + [s for r in problem.restrictions for s in r.shardings]
    for sharding in stated:
        for dim in sharding.dims:
            listed = list(dict.fromkeys(a.name for a in dim.axes))
            if listed != sorted(listed, key=names.index):
                out[(*listed, *(n for n in names if n not in listed))] = None
    return tuple(out)
