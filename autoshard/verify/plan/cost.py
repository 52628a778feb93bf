"""What a plan costs, worked out again from its layouts: collectives, seconds, and the numbers of the proof."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite
from typing import Any, Final

from autoshard.costmodels import AxisPart, Machine
from autoshard.costmodels.compiled import WorkKind
from autoshard.verify.plan.apart import exceeds_chip, spills
from autoshard.verify.plan.as_used import stays
from autoshard.verify.plan.border import cuts
from autoshard.verify.plan.copied import Copies
from autoshard.verify.plan.flow import COLLECTIVES, Flow, Move, Way
from autoshard.verify.plan.host import copies
from autoshard.verify.plan.kinds import kinds_of_work
from autoshard.verify.plan.layout import Holding
from autoshard.verify.plan.matmuls import MatmulOrder
from autoshard.verify.plan.orders import permutes
from autoshard.verify.plan.placed import Placed, uncut
from autoshard.verify.plan.program import PROGRAM_OP, Findings, Node, element_bytes, manual_ops, trips_of
from autoshard.verify.plan.rules import read_rule
from autoshard.verify.plan.through import Reads
from autoshard.verify.plan.travel import Loads
from autoshard.verify.plan.work import (
    cache_bytes,
    computes_with,
    flop,
    is_matrix,
    made_bytes,
    moved_bytes,
    padded_channels,
    turned_bytes,
    vector_flop_of_kernel,
)

RELATIVE: Final = 1e-9
"""Relative difference up to which two figures are the same: they may have been added up in another order."""

MEMORY_PRICE_S_PER_BYTE: Final = 1e-16
"""The minute price of a held byte in the objective, by which plans of equal time prefer less memory."""

TICKS: Final = 1e9
LEAST_STEP_S: Final = 1e-6
"""The solver counts in ticks so short that the cheapest imaginable step (taken as at least 1e-6 s) has at least 1e9."""


@dataclass(frozen=True, slots=True)
class Row:
    """What takes time beside the ops: a step of a reshard, a copy over the host's link, or a collective inside an op.

    bytes, seconds: of one execution. times: executions per step of the program.
    """

    where: str
    value: int
    kind: str
    atoms: tuple[int, ...]
    bytes: float
    seconds: float
    times: float
    op: int
    source: str = ""
    behind: float = inf  # seconds of the matmuls that use what is gathered, over `seconds`


def same(a: Any, b: Any, tolerance: float = RELATIVE) -> bool:
    """Whether both are numbers, and equal up to rounding."""
    if isinstance(a, bool) or isinstance(b, bool) or not isinstance(a, int | float) or not isinstance(b, int | float):
        return False
    return isfinite(a) and isfinite(b) and abs(a - b) <= tolerance * max(abs(a), abs(b)) + 1e-18


@dataclass
class Pricer:
    """Prices what the layouts of a plan need on the machine of the plan."""

    flow: Flow
    machine: Machine

    @cached_property
    def order(self) -> MatmulOrder:
        """Which values lie before and after matmuls."""
        return MatmulOrder.of(self.flow.graph)

    @cached_property
    def loads(self) -> Loads:
        """What steps carry of values, and what gathers hide behind."""
        return Loads(self.flow.graph, self.machine, self.order)

    def parts(self, atoms: tuple[int, ...]) -> tuple[AxisPart, ...]:
        """The atoms as the cost models take them, in the order of the mesh."""
        mesh = self.flow.mesh
        return tuple(AxisPart(mesh.axes[a], mesh.before[a], mesh.sizes[a]) for a in sorted(atoms))

    def local_bytes(self, value: int, held: Holding) -> float:
        """Bytes that a device holds of a value."""
        tensor = self.flow.graph.values[value]
        return held.elements(tensor.shape) * element_bytes(tensor.dtype)

    def step(self, kind: str, atoms: tuple[int, ...], before: float, after: float) -> tuple[float, float]:
        """(bytes, seconds) of a step; before, after: bytes that a device holds. The bytes are the gathered side's, in
        as many whole blocks as there are devices.
        """
        if kind in ("slice", "mask"):  # its result is read and written
            return after, float(self.machine.compute_s(0.0, 2.0 * after, "float32", "vector"))
        devices = self.flow.mesh.group(atoms)
        filled = {"all_gather": devices * before, "reduce_scatter": devices * after, "all_to_all": after}
        size = max(before, filled.get(kind, before))
        whole = size * (devices if kind == "all_to_all" else 1)
        return size, float(self.machine.collective_s(kind, whole, self.parts(atoms)))

    def given(self, size: float, move: Move) -> float:
        """Bytes that a device gives to a step; to an all-to-all in pieces of one length. size: what it holds."""
        for before, after in zip(move.before.runs, move.after.runs, strict=True):
            gained = after.atoms[len(before.atoms) :]
            if move.kind == "all_to_all" and gained and before.length:
                return size * after.length * self.flow.mesh.group(gained) / before.length
        return size

    def rows(self) -> Iterator[Row]:
        """Everything that takes time beside the ops, with its price."""
        flow, graph = self.flow, self.flow.graph
        for value, way in flow.shared.items():
            where, times = f"{flow.name(value)} for all its uses", graph.home[value].times
            yield from self._way(way, where, times, PROGRAM_OP, as_used=value in flow.as_used)
        for (op, slot, region), way in flow.uses.items():
            if stays(flow, way):
                continue
            if op == PROGRAM_OP:
                yield from self._way(way, f"output {graph.output_names[slot]}", 1.0, op)
                continue
            node = graph.nodes[op]
            what = f"{node.label} operand {slot}" if region < 0 else f"{node.label} body result {slot}"
            times = node.times * (trips_of(node, region, graph.trips) if region >= 0 else 1)
            yield from self._way(way, what, times, op, node.source)
        for value, way in cuts(flow).items():
            yield from self._way(way, f"{flow.name(value)}, its block", 1.0, PROGRAM_OP)
        for kind, where, value, held in copies(flow):
            size = self.local_bytes(value, held)
            yield Row(where, value, kind, (), size, self.machine.host_copy_s(size), 1.0, PROGRAM_OP)
        for p in permutes(flow):
            size = self.local_bytes(p.value, p.held)
            size, seconds = self.step("permute", p.atoms, size, size)
            times = graph.home[p.value].times if p.inside else 1.0
            yield Row(p.label, p.value, "permute", p.atoms, size, seconds, times, PROGRAM_OP)
        for node in graph.nodes.values():
            if node.is_manual:
                yield from self._manual(node)
        for op, placed in flow.placed.items():
            node = graph.nodes[op]
            for edge in placed.edges:
                value = node.operands[edge.operand]
                held = placed.operands[edge.operand]
                size = self.local_bytes(value, held) * edge.share(held)
                size, seconds = self.step("permute", edge.atoms, size, size)
                does = "exchanges edges with neighbours" if edge.shift else "moves what it keeps to where it belongs"
                what = f"{node.label} {does}"
                yield Row(what, value, "permute", edge.atoms, size, seconds, node.times, op, node.source)
            for k, value in enumerate(node.results if placed.combined else ()):
                size = self.local_bytes(value, placed.results[k])
                size, seconds = self.step("all_reduce", placed.combined, size, size)
                what = f"{node.label} combines its result ({placed.rule.combiner})"
                yield Row(what, value, "all_reduce", placed.combined, size, seconds, node.times, op, node.source)

    def _manual(self, op: Node) -> Iterator[Row]:
        """The collectives that the user wrote into a shard_map, on its local types."""
        values, mesh = self.flow.graph.values, self.flow.mesh
        for inner, times in manual_ops(op, self.flow.graph.trips):
            if "collective" not in inner.attrs:
                continue
            kind, atoms = inner.attrs["collective"], tuple(a for axis in inner.attrs["axes"] for a in mesh.of(axis))
            given = inner.operands[: 1 if inner.attrs.get("ragged") else None]
            for before, after in zip(given, inner.results, strict=True):
                sizes = values[before].bytes, values[after].bytes
                if inner.attrs.get("ragged"):  # either may be a buffer for the worst case
                    sizes = min(sizes), min(sizes)
                size, seconds = self.step(kind, atoms, *sizes)
                where = f"{inner.label} of the program's own shard_map"
                yield Row(where, before, kind, atoms, size, seconds, times * op.times, inner.id, inner.source)

    def _way(
        self, way: Way, where: str, times: float, op: int, source: str = "", as_used: bool = False
    ) -> Iterator[Row]:
        for move in way.moves:
            share = self.loads.carried(move.kind, way.value, op, as_used)
            before, after = (self.local_bytes(way.value, held) * share for held in (move.before, move.after))
            before = self.given(before, move)
            size, seconds = self.step(move.kind, move.atoms, before, after)
            runs_as = move.kind
            if move.kind == "reduce_scatter" and self.loads.sums_whole(way.value, move):
                runs_as = "all_reduce"
                seconds = self.step(runs_as, move.atoms, before, before)[1]
            if self.loads.latency(runs_as, way.value, op) == 0:
                seconds -= self.machine.alpha_beta(runs_as, self.parts(move.atoms))[0]
            behind = inf
            if move.kind == "all_gather":
                beta = self.machine.alpha_beta(move.kind, self.parts(move.atoms))[1]
                group = self.flow.mesh.group(move.atoms)
                behind = self.loads.behind(move.kind, way.value, op, group, beta, as_used)
            yield Row(where, way.value, move.kind, move.atoms, size, seconds, times, op, source, behind)

    def executions(self, exists: set[int]) -> Iterator[tuple[Node, Placed, set[int], float]]:
        """Every op with its placement, the values that exist in memory there, and how often it runs in a step."""
        graph = self.flow.graph
        for op, placed in self.flow.placed.items():
            node = graph.nodes[op]
            yield node, placed, exists, node.times
        for node in graph.nodes.values():
            if node.is_manual:
                # everything in a user's shard_map is local and counts as written to memory, its arguments included
                inner = [(n, times) for n, times in manual_ops(node, graph.trips)]
                local = exists | {
                    v for n, _ in inner for v in (*n.results, *n.operands) if not graph.values[v].is_literal
                }
                for n, times in inner:
                    if n.rule is not None and "collective" not in n.attrs:
                        yield n, uncut(read_rule(n.rule)), local, node.times * times

    def compute_s(self, exists: set[int]) -> float:
        """Roofline seconds of all ops in one step of the program."""
        return sum(times * self._op_s(op, placed, there) for op, placed, there, times in self.executions(exists))

    def _op_s(self, op: Node, placed: Placed, exists: set[int]) -> float:
        graph = self.flow.graph
        dtype = computes_with(op, graph)
        unit = "matmul" if is_matrix(op) else "vector"
        work, moved = flop(op, placed, graph), moved_bytes(op, placed, graph, exists)
        kind = self._kind(op, placed)
        moved += self._reads.bytes(op, placed, kind, exists)
        compiled = self.machine.profile.compiled_work
        if kind is WorkKind.CONVOLUTION and compiled is not None and compiled.pads_channels:
            work *= padded_channels(placed, self.machine.profile.matmul_tile)
        beside = float(self.machine.compute_s(vector_flop_of_kernel(op, placed), 0.0, dtype, "vector"))
        made = made_bytes(op, placed, graph) if unit == "matmul" else 0.0
        seconds = float(self.machine.work_s(kind, work, moved, dtype, unit, made))
        copied_s = float(self.machine.work_s(WorkKind.KERNEL, 0.0, self.copies.bytes(op, placed), dtype))
        return max(seconds + self._turning_s(op, placed, dtype) + copied_s, beside)

    def _turning_s(self, op: Node, placed: Placed, dtype: str) -> float:
        """Seconds of what is turned around in memory on machines whose profile says so."""
        compiled, graph = self.machine.profile.compiled_work, self.flow.graph
        moved = 0.0
        if compiled is not None and compiled.sector_bytes:
            moved += turned_bytes(op, placed, graph, compiled.sector_bytes)
        if compiled is not None and compiled.turns_caches and op.kind == "dot_general":
            if self._kinds[op.id] is WorkKind.CACHED:
                moved += cache_bytes(op, placed, graph, self._written) / compiled.memory
        return float(self.machine.compute_s(0.0, moved, dtype)) if moved else 0.0

    @cached_property
    def _reads(self) -> Reads:
        return Reads(self.flow.graph)

    @cached_property
    def copies(self) -> Copies:
        """Of inputs that are written in part."""
        return Copies(self.flow.graph)

    @cached_property
    def _written(self) -> set[int]:
        return {v for op in self.flow.graph.nodes.values() if op.kind == "dynamic_update_slice" for v in op.results}

    def crossing(self, op: Node, placed: Placed) -> float:
        """Bytes of an op that cross memory over those that its placement has."""
        compiled = self.machine.profile.compiled_work
        return 1.0 if compiled is None else compiled.traffic(self._kind(op, placed))

    def _kind(self, op: Node, placed: Placed) -> WorkKind:
        if self.machine.profile.compiled_work is None:
            return WorkKind.KERNEL  # prices do not tell kinds apart
        kind = self._kinds[op.id]
        if kind is WorkKind.CACHED and not exceeds_chip(op, placed, self.flow.graph, self.machine.profile):
            return WorkKind.MATMUL
        if kind not in (WorkKind.MATMUL, WorkKind.SLICED, WorkKind.UPDATED):
            return kind
        if spills(op, placed, self.flow.graph, self.machine.profile):
            return WorkKind.SPILLED
        summed = any(placed.parts[f] > 1 for f in placed.rule.reduction)  # and moved before anything is updated
        return WorkKind.MATMUL if summed and kind is WorkKind.UPDATED else kind

    @cached_property
    def _kinds(self) -> dict[int, WorkKind]:
        return kinds_of_work(self.flow.graph, self.order)


# -- comparing ---------------------------------------------------------------------------------------


def check_cost(
    plan: Any,
    flow: Flow,
    rows: list[Row],
    compute_s: float,
    held_bytes: int,
    overlapped_s: float | None,
    findings: Findings,
) -> None:
    """Cost parts, objective, bound and gap. held_bytes: of everything the objective has a price on. overlapped_s:
    seconds that the objective counts, where it is not the sum of all.
    """
    cost = plan["cost"]
    by_kind: dict[str, float] = {}
    by_axes: dict[str, float] = {}
    both: dict[str, dict[str, float]] = {}
    local_s = 0.0
    for row in rows:
        total = row.seconds * row.times
        if row.kind in COLLECTIVES:
            by_kind[row.kind] = by_kind.get(row.kind, 0.0) + total
            axes = flow.mesh.text(row.atoms, quote="")
            by_axes[axes] = by_axes.get(axes, 0.0) + total
            kinds = both.setdefault(axes, {})
            kinds[row.kind] = kinds.get(row.kind, 0.0) + total
        else:
            local_s += total
    communication_s = sum(by_kind.values())
    step_s = compute_s + communication_s + local_s
    derived: Mapping[str, float] = {
        "compute_s": compute_s,
        "communication_s": communication_s,
        "local_copies_s": local_s,
        "step_s": step_s,
        "nothing_overlaps_s": step_s,
    }
    for key, seconds in derived.items():
        if not same(cost[key], seconds):
            findings.add("cost", f"cost.{key} is {cost[key]} in the plan, the layouts give {seconds}")
    _check_parts("by_kind_s", cost["by_kind_s"], by_kind, findings)
    _check_parts("by_axes_s", cost["by_axes_s"], by_axes, findings)
    for axes in sorted(both.keys() | cost["by_axes_and_kind_s"].keys()):
        told = cost["by_axes_and_kind_s"].get(axes, {})
        _check_parts(f"by_axes_and_kind_s[{axes}]", told, both.get(axes, {}), findings)
    rounding = cost["rounding_s"]
    decisions = 2 * len(flow.graph.values) + 4 * len(flow.uses) + len(flow.graph.nodes)
    most = max(step_s, LEAST_STEP_S) / TICKS / 2 * decisions
    if not isfinite(rounding) or not 0 <= rounding <= most * (1 + RELATIVE):
        findings.add("cost", f"cost.rounding_s is {rounding} in the plan; ticks this fine round by {most} s at most")
        rounding = 0.0
    price_s = held_bytes * MEMORY_PRICE_S_PER_BYTE
    # a copy in the same layout as its source costs less than a tick and is not in the schedule: rounding covers it
    if not isfinite(cost["memory_price_s"]) or abs(cost["memory_price_s"] - price_s) > rounding + RELATIVE * price_s:
        findings.add(
            "cost",
            f"cost.memory_price_s is {cost['memory_price_s']} in the plan; {held_bytes} bytes held give {price_s}",
        )
        price_s = 0.0
    else:
        price_s = cost["memory_price_s"]
    objective = plan["objective_s"]
    counted_s = step_s if overlapped_s is None else overlapped_s
    if not same(objective, counted_s + price_s):
        findings.add(
            "cost",
            f"objective_s is {objective} in the plan; step and memory price give {counted_s} + {price_s} = "
            f"{counted_s + price_s}",
        )


def _check_parts(key: str, told: Mapping[str, Any], parts: Mapping[str, float], findings: Findings) -> None:
    """Compare seconds by name."""
    for name in sorted(parts.keys() | told.keys()):
        if not same(told.get(name, 0.0), parts.get(name, 0.0)):
            findings.add(
                "cost", f"cost.{key}[{name}] is {told.get(name)} in the plan, the layouts give {parts.get(name, 0.0)}"
            )
