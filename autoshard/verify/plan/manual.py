"""Do manual computations hold: are layouts at their borders as stated, and does nothing move over their axes inside?"""

from typing import Any

from autoshard.verify.plan.flow import Flow, Way
from autoshard.verify.plan.layout import Impossible
from autoshard.verify.plan.program import PROGRAM_OP, Findings, Node
from autoshard.verify.plan.restrictions import part_of
from autoshard.verify.plan.statements import MANUAL_COMPUTATION, read_pin


def check_manual_computations(plan: Any, flow: Flow, findings: Findings) -> None:
    """Check each statement about a manual computation against the derived layouts."""
    for statement in plan["statements"]:
        if statement["kind"] == MANUAL_COMPUTATION:
            _check(statement, flow, findings)


def _check(statement: Any, flow: Flow, findings: Findings) -> None:
    """Check one statement; which ops are inside, and which values cross its border, is worked out here again."""
    graph, mesh = flow.graph, flow.mesh
    what = (f"{statement['source']}: " if statement["source"] else "") + statement["text"]
    region = part_of(statement["patterns"], flow).ops
    if not region:
        findings.add("statements", f"{what} speaks of no op of the program")
        return
    unknown = [axis for axis in statement["axes"] if axis not in mesh.whole]
    if unknown or not statement["axes"]:
        findings.add("statements", f"{what}: the mesh has no axis {unknown[0]!r}" if unknown else f"{what} has no axis")
        return
    atoms = frozenset(a for axis in statement["axes"] for a in mesh.of(axis))
    inside = {v for n in region for v in _made(graph.nodes[n])}
    _check_borders(what, statement, region, inside, flow, findings)
    _still(what, region, inside, atoms, flow, findings)


def _check_borders(
    what: str, statement: Any, region: frozenset[int], inside: set[int], flow: Flow, findings: Findings
) -> None:
    """Check that the stated shardings are of the values that cross, and that these are held so."""
    told = {key: {item["value"]: item["sharding"] for item in statement[key]} for key in _BORDERS}
    entering = {way.value for use, way in flow.uses.items() if use[0] in region and way.value not in inside}
    leaving = {way.value for use, way in flow.uses.items() if use[0] not in region and way.value in inside}
    for key, crossing in zip(_BORDERS, (entering, leaving), strict=True):
        if set(told[key]) != crossing:
            names = ", ".join(flow.name(v) for v in sorted(crossing)) or "none"
            findings.add("statements", f"{what}: its {key} are of other values than are at that border, {names}")
    for texts in told.values():
        for value, text in texts.items():
            _mentions_all(what, text, value, statement["axes"], flow, findings)
    for use, way in flow.uses.items():
        text = told["in_shardings"].get(way.value)
        if use[0] in region and way.value not in inside and text is not None:
            fault = _fault(text, way.end, flow)
            if fault:
                findings.add(
                    "statements", f"{what} is broken: {flow.name(way.value)} for {flow.use_name(use)}: {fault}"
                )
    for value, text in told["out_shardings"].items():
        held = flow.form(value)
        fault = "" if held is None else _fault(text, held, flow)
        if fault:
            findings.add("statements", f"{what} is broken: {flow.name(value)} as it leaves: {fault}")


_BORDERS = ("in_shardings", "out_shardings")


def _made(op: Node) -> list[int]:
    """Values that an op makes: its results, and the arguments of its regions."""
    return [*op.results, *(v for body in op.inner for v in body.args)]


def _fault(text: str, held: Any, flow: Flow) -> str:
    """Why a layout does not hold the sharding in `text`; empty where it does."""
    try:
        return read_pin(text, flow.mesh).broken_by(held, flow.mesh)
    except Impossible as error:
        return str(error)


def _mentions_all(what: str, text: str, value: int, axes: Any, flow: Flow, findings: Findings) -> None:
    """Each manual axis must cut, be replicated or unreduced (S4.17); none may stand behind a free axis (S4.18)."""
    mesh = flow.mesh
    try:
        pin = read_pin(text, mesh)
    except Impossible as error:
        findings.add("statements", f"{what}: {text}: {error}")
        return
    manual = {a for axis in axes for a in mesh.of(axis) if mesh.sizes[a] > 1}
    said = {a for dim, _ in pin.dims for a in dim} | pin.replicated | pin.unreduced
    if not manual <= said:
        missing = mesh.text(sorted(manual - said))
        findings.add("statements", f"{what}: the sharding {text} of {flow.name(value)} leaves {{{missing}}} open")
    for dim, _ in pin.dims:
        kinds = [a in manual for a in dim]
        if kinds != sorted(kinds, reverse=True):
            findings.add(
                "statements", f"{what}: in {text} of {flow.name(value)} a free axis stands before a manual one"
            )


def _still(
    what: str, region: frozenset[int], inside: set[int], atoms: frozenset[int], flow: Flow, findings: Findings
) -> None:
    """Check that inside of the region nothing moves over the manual axes."""
    mesh = flow.mesh

    def at_rest(name: str, way: Way) -> None:
        for move in way.moves:
            if any(a in atoms and mesh.sizes[a] > 1 for a in move.atoms):
                findings.add("statements", f"{what} is broken: {move.kind} over {{{mesh.text(move.atoms)}}} of {name}")

    for value, way in flow.shared.items():
        if value in inside:
            at_rest(f"the shared form of {flow.name(value)}", way)
    for use, way in flow.uses.items():
        if way.value in inside and use[0] in region and use[0] != PROGRAM_OP:
            at_rest(f"{flow.name(way.value)} for {flow.use_name(use)}", way)
    for number in sorted(region):
        node, placed = flow.graph.nodes[number], flow.placed.get(number)
        own = set() if placed is None else {*placed.combined, *(a for edge in placed.edges for a in edge.atoms)}
        if own & atoms:
            findings.add("statements", f"{what} is broken: {node.label} has a collective of its own over its axes")
        if node.is_manual and atoms & {a for axis in _axes_of(node) for a in mesh.of(axis)}:
            findings.add("statements", f"{what}: {node.label} inside of it is manual over one of its axes too")


def _axes_of(node: Node) -> list[str]:
    return [axis if isinstance(axis, str) else axis[0] for axis in node.attrs["mesh_axes"]]
