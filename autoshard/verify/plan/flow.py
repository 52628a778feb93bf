"""The flow of every value: it is defined in one layout, perhaps shared in another, and brought to every use in a third.

The layouts of an op's operands and results follow from its placement; those at the borders of regions from the block
arguments; those of the program's outputs from donated inputs and pins. Every reshard is replayed on what devices hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoshard.verify.plan.layout import Atoms, Holding, Impossible, Run, apply_step, cut, extent, holding
from autoshard.verify.plan.placed import Placed, literal_partial, place
from autoshard.verify.plan.program import PROGRAM_OP, Findings, Graph, Node
from autoshard.verify.plan.rules import read_rule, rule_faults
from autoshard.verify.plan.ties import donated_ties

COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute")
STEPS = (*COLLECTIVES, "slice", "mask")

UseKey = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a reshard, with what devices hold before and after."""

    kind: str
    atoms: tuple[int, ...]
    before: Holding
    after: Holding


@dataclass(frozen=True, slots=True)
class Way:
    """A reshard: the value, the moves, and what devices hold at its end."""

    value: int
    moves: tuple[Move, ...]
    end: Holding


@dataclass
class Flow:
    """Everything derived about layouts.

    placed: by op. defined: what devices hold of each value where it is made. shared: the reshard of a value before all
    its uses; as_used: values of which it is gathered as they are used. uses: the reshard before each use. ties: output
    slot -> input whose layout it has; replaced: those of them whose input is donated.
    """

    graph: Graph
    mesh: Atoms
    placed: dict[int, Placed] = field(default_factory=dict)
    defined: dict[int, Holding] = field(default_factory=dict)
    shared: dict[int, Way] = field(default_factory=dict)
    as_used: frozenset[int] = frozenset()
    uses: dict[UseKey, Way] = field(default_factory=dict)
    ties: dict[int, int] = field(default_factory=dict)
    replaced: dict[int, int] = field(default_factory=dict)

    def form(self, value: int) -> Holding | None:
        """What devices hold of a value where the ways to its uses begin; None where that is not known."""
        way = self.shared.get(value)
        return self.defined.get(value) if way is None else way.end

    def name(self, value: int) -> str:
        """The name of a value."""
        return self.graph.values[value].name

    def use_name(self, use: UseKey) -> str:
        """A use in words, for messages."""
        op, slot, region = use
        if op == PROGRAM_OP:
            return f"output {self.graph.output_names[slot]}"
        label = self.graph.nodes[op].label
        return f"operand {slot} of {label}" if region < 0 else f"result {slot} of region {region} of {label}"


def derive(plan: Any, graph: Graph, mesh: Atoms, findings: Findings) -> Flow:
    """Read the schedule and work out every layout; contradictions go to `findings`."""
    schedule = plan["schedule"]
    flow = Flow(graph, mesh, as_used=frozenset(schedule.get("as_used", ())))
    _definitions(flow, schedule["definitions"], findings)
    _placements(flow, schedule["placements"], findings)
    _shared(flow, schedule["shared"], findings)
    _uses(flow, schedule["uses"], findings)
    return flow


def check_flow(
    flow: Flow, pinned_outputs: Mapping[int, Any], pinned_unevenly: Mapping[int, set[int]], findings: Findings
) -> None:
    """Check that every value arrives at each use in the layout that the use wants.

    pinned_outputs: output slots with pins. pinned_unevenly: dimensions that pins cut unevenly, by value.
    """
    graph = flow.graph
    for value in graph.body.args:
        held = flow.defined.get(value)
        if held is None:
            continue
        if held.partial:
            findings.add(
                "layouts", f"input {flow.name(value)} is a partial sum, {held.text(flow.mesh)}; inputs are whole"
            )
        for d in held.padded(flow.mesh):
            if d not in pinned_unevenly.get(value, ()):
                findings.add(
                    "layouts",
                    f"input {flow.name(value)} is cut unevenly along dimension {d}, {held.text(flow.mesh)}; inputs are "
                    "where a pin says so only",
                )
    for op in graph.nodes.values():
        if op.regions:
            _region(flow, op, findings)
        elif op.id in flow.placed:
            _op(flow, op, flow.placed[op.id], findings)
    _outputs(flow, pinned_outputs, findings)


# -- reading the schedule ----------------------------------------------------------------------------


def _definitions(flow: Flow, data: Any, findings: Findings) -> None:
    graph = flow.graph
    for key, layout in data.items():
        value = int(key)
        if value not in graph.home:
            findings.add("layouts", f"value {key} has a layout but is defined nowhere (or is a literal)")
            continue
        tensor = graph.values[value]
        try:
            held = holding(layout, tensor.shape, flow.mesh, tensor.name)
        except Impossible as error:
            findings.add("layouts", f"definition of {tensor}: {error}")
            continue
        if held.partial and not tensor.is_summable:
            findings.add("layouts", f"definition of {tensor}: a partial sum of a type without addition")
        flow.defined[value] = held
    for value in graph.home:
        if str(value) not in data:
            findings.add("layouts", f"{graph.values[value]} has no layout in schedule.definitions")


def _placements(flow: Flow, data: Any, findings: Findings) -> None:
    rules: dict[str, Any] = {}
    for op in flow.graph.nodes.values():
        if op.rule is None:
            continue
        try:
            key = str(op.rule)
            rule = rules.get(key) or rules.setdefault(key, read_rule(op.rule))
        except (ValueError, KeyError, TypeError) as error:
            findings.add("rules", f"{op.label}: {error}")
            continue
        faults = rule_faults(op, rule, flow.graph)
        for fault in faults:
            findings.add("rules", f"{op.label} {op.source}: rule {rule.text}: {fault}")
        if str(op.id) not in data:
            findings.add("placements", f"{op.label} {op.source} has no placement")
        elif not faults:
            try:
                flow.placed[op.id] = place(op, rule, data[str(op.id)], flow.graph, flow.mesh)
            except Impossible as error:
                findings.add("placements", f"{op.label} {op.source}: {error}")
    for key in data:
        if int(key) not in flow.graph.nodes or flow.graph.nodes[int(key)].rule is None:
            findings.add("placements", f"op {key} is placed, but there is no such op with a rule")


def _way(
    flow: Flow, value: int, start: Holding | None, steps: Sequence[Any], what: str, findings: Findings
) -> Way | None:
    """The reshard that `steps` make, replayed from `start`; None where it cannot be."""
    if start is None:
        return None  # reported where the definition is missing
    moves = []
    for step in steps:
        try:
            after = apply_step(step, start, flow.mesh, flow.graph.values[value].is_summable)
        except Impossible as error:
            findings.add("reshards", f"{what} of {flow.name(value)}, from {start.text(flow.mesh)}: {error}")
            return None
        moves.append(Move(step["kind"], tuple(step["atoms"]), start, after))
        start = after
    return Way(value, tuple(moves), start)


def _shared(flow: Flow, data: Any, findings: Findings) -> None:
    for key, steps in data.items():
        value = int(key)
        if value not in flow.graph.home:
            findings.add("reshards", f"value {key} has a shared form but is defined nowhere")
            continue
        way = _way(flow, value, flow.defined.get(value), steps, "the shared form", findings)
        if not steps:
            findings.add("reshards", f"the shared form of {flow.name(value)} has no steps")
        if way is not None:
            flow.shared[value] = way


def _uses(flow: Flow, data: Any, findings: Findings) -> None:
    seen: set[UseKey] = set()
    for item in data:
        use = (item["op"], item["slot"], item["region"])
        try:
            value = flow.graph.used(*use)
        except (KeyError, IndexError):
            findings.add(
                "uses", f"the schedule has a use {item['op']}/{item['slot']}/{item['region']} that the program lacks"
            )
            continue
        if use in seen:
            findings.add("uses", f"{flow.use_name(use)} is there twice")
        seen.add(use)
        if flow.graph.values[value].is_literal:
            findings.add("uses", f"{flow.use_name(use)} is a literal, which has no layout to bring it to")
            continue
        way = _way(flow, value, flow.form(value), item["steps"], flow.use_name(use), findings)
        if way is not None:
            flow.uses[use] = way
    for use, value in _all_uses(flow.graph):
        if use not in seen and not flow.graph.values[value].is_literal:
            findings.add("uses", f"{flow.use_name(use)}: the schedule does not say how it gets {flow.name(value)}")


def _all_uses(graph: Graph) -> list[tuple[UseKey, int]]:
    uses = [((PROGRAM_OP, k, -1), v) for k, v in enumerate(graph.body.results)]
    for op in graph.nodes.values():
        uses += [((op.id, k, -1), v) for k, v in enumerate(op.operands)]
        uses += [((op.id, k, r), v) for r, body in enumerate(op.inner) for k, v in enumerate(body.results)]
    return uses


# -- what consumers want -----------------------------------------------------------------------------


def _arrives(flow: Flow, use: UseKey, wanted: Holding | None, why: str, findings: Findings) -> None:
    """Check that a value arrives at a use in the layout that is wanted there."""
    way = flow.uses.get(use)
    if way is None or wanted is None:
        return  # literals, or reported already
    if way.end != wanted:
        findings.add(
            "uses",
            f"{flow.use_name(use)}: {flow.name(way.value)} arrives in {way.end.text(flow.mesh)}, {why} "
            f"{wanted.text(flow.mesh)}",
        )


def _defines(flow: Flow, value: int, wanted: Holding | None, why: str, findings: Findings) -> None:
    held = flow.defined.get(value)
    if held is not None and wanted is not None and held != wanted:
        findings.add(
            "layouts", f"{flow.name(value)} is defined in {held.text(flow.mesh)}, {why} {wanted.text(flow.mesh)}"
        )


def _op(flow: Flow, op: Node, placed: Placed, findings: Findings) -> None:
    for k in literal_partial(op, placed, flow.graph):
        findings.add("placements", f"{op.label}: operand {k} is a literal and cannot be a partial sum")
    for k, wanted in enumerate(placed.operands):
        _arrives(flow, (op.id, k, -1), wanted, "its placement wants", findings)
    for k, result in enumerate(op.results):
        _defines(flow, result, placed.results[k], f"the placement of {op.label} gives", findings)


def _region(flow: Flow, op: Node, findings: Findings) -> None:
    if op.is_manual:
        _manual(flow, op, findings)
        return
    graph = flow.graph
    carries = _carries(op)
    for region, body in enumerate(op.regions):
        for k, arg in enumerate(body.args):
            slot = _feeding(op, region, k)
            held = flow.defined.get(arg)
            if held is None:
                continue
            stacked = op.kind == "scan" and slot >= op.attrs["num_consts"] + op.attrs["num_carry"]
            wanted = held.stacked(extent(op.attrs["length"], flow.mesh)) if stacked else held
            _arrives(flow, (op.id, slot, -1), wanted, "the block argument it feeds is", findings)
            allowed = op.kind == "scan" and op.attrs["num_consts"] <= k < op.attrs["num_consts"] + op.attrs["num_carry"]
            if held.partial and not allowed:
                findings.add(
                    "layouts",
                    f"{op.label}: block argument {graph.values[arg].name} is a partial sum, {held.text(flow.mesh)}; "
                    "only carries of a scan may be",
                )
        if op.kind == "while" and region == 0:
            _arrives(flow, (op.id, 0, 0), Holding(()), "a predicate must be whole,", findings)
            continue
        for k, result in enumerate(op.results):
            held = flow.defined.get(result)
            if held is None:
                continue
            if held.partial and op.kind != "scan":
                findings.add(
                    "layouts", f"{op.label}: result {flow.name(result)} is a partial sum; only those of a scan may be"
                )
            if op.kind == "scan" and k >= carries:
                if held.runs[0] != Run(extent(op.attrs["length"], flow.mesh)):
                    findings.add(
                        "layouts",
                        f"{op.label}: stacked result {flow.name(result)} is cut along its stack, "
                        f"{held.text(flow.mesh)}",
                    )
                    continue
                held = Holding(held.runs[1:], held.partial)
            _arrives(flow, (op.id, k, region), held, f"result {flow.name(result)} of {op.label} is", findings)
            if k < carries:
                arg = body.args[len(body.args) - carries + k if op.kind == "while" else op.attrs["num_consts"] + k]
                _defines(flow, result, flow.defined.get(arg), f"carry {k} of {op.label} is", findings)
    if op.kind == "cond":
        _arrives(flow, (op.id, 0, -1), Holding(()), "the index must be whole,", findings)


def _carries(op: Node) -> int:
    return op.attrs["num_carry"] if op.kind == "scan" else len(op.results) if op.kind == "while" else 0


def _feeding(op: Node, region: int, arg: int) -> int:
    """The slot of the operand that feeds an argument of a region."""
    if op.kind == "cond":
        return arg + 1
    if op.kind != "while":
        return arg
    n_cond, n_body = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
    if region == 0:
        return arg if arg < n_cond else arg + n_body
    return arg + n_cond


def _manual(flow: Flow, op: Node, findings: Findings) -> None:
    """Check that a user's shard_map is for axes of this mesh, and has what it takes and gives where the user wrote."""
    for name, size in op.attrs["mesh_axes"]:
        if flow.mesh.whole.get(name) != size:
            findings.add("layouts", f"{op.label} is for {size} devices along {name!r}, not {flow.mesh.whole.get(name)}")
    for k, value in enumerate(op.operands):
        wanted = _named(flow, value, op.attrs["in_names"][k], findings, op)
        _arrives(flow, (op.id, k, -1), wanted, "the shard_map is written for", findings)
    for k, value in enumerate(op.results):
        _defines(
            flow, value, _named(flow, value, op.attrs["out_names"][k], findings, op), "the shard_map gives", findings
        )


def _named(flow: Flow, value: int, names: Sequence[Sequence[str]], findings: Findings, op: Node) -> Holding | None:
    """What devices hold of a value that is cut by the axes named for each dimension; None where that is impossible."""
    tensor = flow.graph.values[value]
    try:
        runs = tuple(
            cut(n, [a for axis in axes for a in flow.mesh.of(axis)], flow.mesh, f"dimension {d} of {tensor.name}")
            for d, (n, axes) in enumerate(zip(tensor.shape, names, strict=True))
        )
        if uneven := Holding(runs).padded(flow.mesh):
            raise Impossible(f"dimension {uneven[0]} of {tensor.name} is cut by {names[uneven[0]]}, not evenly")
    except Impossible as error:
        findings.add("layouts", f"{op.label}: {error}")
        return None
    return Holding(runs)


# -- outputs -----------------------------------------------------------------------------------------


def _outputs(flow: Flow, pinned: Mapping[int, Any], findings: Findings) -> None:
    graph = flow.graph
    flow.replaced = donated_ties(graph)
    flow.ties = flow.replaced | {slot: graph.body.args[number] for slot, number in graph.carried}
    for slot, value in enumerate(graph.body.results):
        way = flow.uses.get((PROGRAM_OP, slot, -1))
        if way is None:
            continue
        if way.end.partial:
            findings.add(
                "layouts",
                f"output {graph.output_names[slot]} is handed back as a partial sum, {way.end.text(flow.mesh)}",
            )
        if way.end.padded(flow.mesh):
            findings.add(
                "layouts",
                f"output {graph.output_names[slot]} is handed back cut unevenly, {way.end.text(flow.mesh)}; arrays are "
                "even where they leave",
            )
        if slot in flow.ties and slot not in pinned:
            source = flow.ties[slot]
            wanted = flow.defined.get(source)
            if wanted is not None and way.end != wanted and not wanted.padded(flow.mesh):
                findings.add(
                    "ties",
                    f"output {graph.output_names[slot]} "
                    f"{'takes the place of the donated' if slot in flow.replaced else 'is the next value of the'} "
                    f"input {flow.name(source)}, "
                    f"which is {wanted.text(flow.mesh)}, but is handed back in "
                    f"{way.end.text(flow.mesh)} ({flow.name(value)})",
                )
