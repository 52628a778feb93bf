"""The collectives that a plan's layouts need, as records that can be compared with those of program texts."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoshard.verify.plan.flow import COLLECTIVES, Flow, Move, Way, derive
from autoshard.verify.plan.layout import Atoms, Holding, read_atoms
from autoshard.verify.plan.orders import permutes
from autoshard.verify.plan.program import PROGRAM_OP, Body, Findings, Node, element_bytes, read_graph


@dataclass(frozen=True, slots=True)
class Around:
    """A region around a collective; trips is None where the program does not know."""

    kind: str
    trips: int | None


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective.

    atoms: of the group. from_atoms: of a permute, the order of the atoms before. elements: that one device gives to it.
    loops: regions around it, outermost first. shift, pairs: as in `lowering.collectives.PlannedCollective`.
    """

    where: str
    kind: str
    atoms: tuple[int, ...]
    from_atoms: tuple[int, ...]
    elements: int
    dtype: str
    combiner: str
    loops: tuple[Around, ...]
    shift: int = 0
    pairs: tuple[tuple[int, int], ...] = ()


_ORDERED = {"float16": "int16", "bfloat16": "int16", "float32": "int32", "float64": "int64"}
"""Floats whose maxima and minima are sent as integers in the same order: collectives on CPUs drop NaN."""


AS_NUMBERS: Final = {"cpu": (), "gpu": ("float16", "bfloat16"), "tpu": tuple(_ORDERED)}
"""By platform, floats whose maxima and minima are sent as they are: XLA would send words of two bytes as four on GPUs,
and collectives of TPUs keep NaN."""


def collectives_of(plan: Any, *, as_numbers: Collection[str] = ()) -> list[Collective]:
    """Every collective that follows from the layouts of a plan that passed `check_plan`.

    as_numbers: floats whose maxima and minima are sent as they are (`AS_NUMBERS`).
    """
    findings = Findings()
    mesh, _ = read_atoms(plan["mesh"])
    flow = derive(plan, read_graph(plan, findings), mesh, findings)
    assert not findings, "the plan was checked before"
    return list(_collectives(flow, {name: word for name, word in _ORDERED.items() if name not in as_numbers}))


def _collectives(flow: Flow, ordered: Mapping[str, str]) -> Iterator[Collective]:
    graph, around = flow.graph, _around(flow)
    for value, way in flow.shared.items():
        loops = around[id(graph.home[value])]
        yield from (_one(flow, way, move, "shared form", loops) for move in way.moves if move.kind in COLLECTIVES)
    for use, way in flow.uses.items():
        op, _, region = use
        if op == PROGRAM_OP:
            loops: tuple[Around, ...] = ()
        elif region >= 0:
            loops = around[id(graph.nodes[op].regions[region])]
        else:
            loops = around[op]
        yield from (_one(flow, way, move, flow.use_name(use), loops) for move in way.moves if move.kind in COLLECTIVES)
    for p in permutes(flow):
        tensor, everything = graph.values[p.value], tuple(range(len(flow.mesh.sizes)))
        elements, dtype = p.held.elements(tensor.shape), tensor.dtype
        if dtype.startswith("key<"):
            elements, dtype = elements * int(element_bytes(dtype)) // 4, "uint32"
        loops = around[id(graph.home[p.value])] if p.inside else ()
        yield Collective(p.label, "permute", everything, (), elements, dtype, "", loops, 0, p.pairs)
    for node in graph.nodes.values():
        for body in node.regions if node.is_manual else ():
            yield from _manual(flow, body, around[node.id])
    for op, placed in flow.placed.items():
        node = graph.nodes[op]
        for edge in placed.edges:
            tensor = graph.values[node.operands[edge.operand]]
            held = placed.operands[edge.operand]
            elements = round(held.elements(tensor.shape) * edge.share(held))
            where = f"{node.label} exchanges {'edges' if edge.shift else 'elements'} of {tensor.name}"
            yield Collective(
                where, "permute", edge.atoms, (), elements, tensor.dtype, "", around[op], edge.shift, edge.pairs
            )
        for k, value in enumerate(node.results if placed.combined else ()):
            tensor = graph.values[value]
            elements = placed.results[k].elements(tensor.shape)
            where = f"{node.label} combines {tensor.name}"
            dtype = ordered.get(tensor.dtype, tensor.dtype)
            yield Collective(
                where, "all_reduce", placed.combined, (), elements, dtype, placed.rule.combiner, around[op]
            )


def _manual(flow: Flow, body: Body, loops: tuple[Around, ...]) -> Iterator[Collective]:
    """The collectives that the user wrote into a shard_map."""
    for op in body.ops:
        for region, inner in enumerate(op.regions):
            yield from _manual(flow, inner, (*loops, Around(op.kind, _trips(op, region))))
        if "collective" in op.attrs:
            atoms = tuple(a for axis in op.attrs["axes"] for a in flow.mesh.of(axis))
            pairs = tuple((int(s), int(t)) for s, t in op.attrs.get("pairs", ()))
            for v in op.operands[: 1 if op.attrs.get("ragged") else None]:
                tensor = flow.graph.values[v]
                where = f"{op.label} of the program's own shard_map"
                kind, combiner = op.attrs["collective"], op.attrs["combiner"]
                yield Collective(where, kind, atoms, (), tensor.elements, tensor.dtype, combiner, loops, 0, pairs)


def _one(flow: Flow, way: Way, move: Move, where: str, loops: tuple[Around, ...]) -> Collective:
    tensor = flow.graph.values[way.value]
    sums = move.kind in ("all_reduce", "reduce_scatter")
    old = _order_before(move.before, move.after) if move.kind == "permute" else ()
    elements, dtype = _given(move, tensor.shape, flow.mesh), tensor.dtype
    if dtype.startswith("key<"):  # random keys travel as their words
        elements, dtype = elements * int(element_bytes(dtype)) // 4, "uint32"
    where = f"{tensor.name} -> {where}"
    return Collective(where, move.kind, move.atoms, old, elements, dtype, "add" if sums else "", loops)


def _given(move: Move, shape: tuple[int, ...], mesh: Atoms) -> int:
    """Elements that a device gives, with padding: a dimension that the step divides is filled up to equal pieces."""
    elements = move.before.elements(shape)
    for before, after in zip(move.before.runs, move.after.runs, strict=True):
        gained = after.atoms[len(before.atoms) :]
        if gained and elements:
            elements = elements // before.length * after.length * mesh.group(gained)
    return elements


def _order_before(before: Holding, after: Holding) -> tuple[int, ...]:
    """The atoms, before a permute, of the dimension that it changes."""
    return next(a.atoms for a, b in zip(before.runs, after.runs, strict=True) if a != b)


def _around(flow: Flow) -> dict[int, tuple[Around, ...]]:
    """Regions around every body (by identity) and every op (by its id)."""
    out: dict[int, tuple[Around, ...]] = {}

    def visit(body: Body, loops: tuple[Around, ...]) -> None:
        out[id(body)] = loops
        for op in body.ops:
            out[op.id] = loops
            for region, inner in enumerate(op.inner):
                visit(inner, (*loops, Around(op.kind, _trips(op, region))))

    visit(flow.graph.body, ())
    return out


def _trips(op: Node, region: int) -> int | None:
    """How often a region runs in one execution of its op; the condition of a while runs once more than its body."""
    if op.kind == "scan":
        return int(op.attrs["length"])
    if op.kind == "while":
        known = op.attrs.get("trips")
        return None if known is None else int(known) + (region == 0)
    return 1
