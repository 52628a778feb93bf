"""Restrictions in the network: states that keep an axis for named values, and reshards without some collectives."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoshard.constraints.restrictions import Kind, Restriction
from autoshard.errors import InfeasibleError
from autoshard.formulation.collect import Collected
from autoshard.formulation.domains import satisfies
from autoshard.formulation.model import Link, Node, NodeKind
from autoshard.program.program import Op, Program
from autoshard.program.rule import ShardingRule
from autoshard.program.schedule import PROGRAM, Placement
from autoshard.sharding.layout import AtomMesh, Layout
from autoshard.sharding.tensor_sharding import TensorSharding


def restrict_nodes(
    collected: Collected,
    program: Program,
    mesh: AtomMesh,
    restrictions: Sequence[Restriction],
    ties: Mapping[int, int],
) -> None:
    """Keep the states that the restrictions allow, and mark the links whose reshards may not use some collectives."""
    for restriction in restrictions:
        for node, mask in state_masks(collected, program, mesh, restriction, ties).items():
            _narrow(collected.nodes[node], mask, restriction)
    barred = [r for r in restrictions if r.kind is Kind.NO_COLLECTIVE]
    for restriction in barred:
        _no_collective_in_code(program, restriction)
    manual = [r for r in restrictions if r.kind is Kind.MANUAL]
    if barred or manual:
        collected.links[:] = [_local(_barred(link, barred, mesh), manual, mesh) for link in collected.links]


def state_masks(
    collected: Collected, program: Program, mesh: AtomMesh, restriction: Restriction, ties: Mapping[int, int]
) -> dict[int, np.ndarray]:
    """Node -> which of its states a restriction allows, for the nodes where it forbids some."""
    atoms = frozenset(a for name in restriction.axes for a in mesh.atoms_of[name])
    if restriction.kind is Kind.AXIS_ONLY:
        found = _exclusive(collected, program, restriction, atoms, ties)
    elif restriction.kind is Kind.NO_COLLECTIVE:
        found = _no_combining(collected, program, restriction, atoms)
    elif restriction.kind is Kind.MANUAL:
        found = _no_combining(collected, program, restriction, atoms)
        for node, mask in _as_stated(collected, mesh, restriction).items():
            found[node] = found[node] & mask if node in found else mask
    else:
        return {}
    return {node: mask for node, mask in found.items() if not mask.all()}


def _no_collective_in_code(program: Program, restriction: Restriction) -> None:
    """Raise `InfeasibleError` where a `shard_map` of the program has such a collective of its own."""
    for op, outer in program.walk():
        if "collective" not in op.attrs or not set(op.attrs["axes"]) & set(restriction.axes):
            continue
        around = {o.id for o in outer if o.kind == "shard_map"}
        if around and (restriction.whole or op.id in restriction.ops or around & set(restriction.ops)):
            axes = ", ".join(op.attrs["axes"])
            own = f"{op.source}: {op.kind} over {axes} in a shard_map of the program"
            raise InfeasibleError(
                f"these 2 statements cannot hold together\n  {restriction.cited}\n  {own}\n"
                "take the collective out of the code, or state less",
                conflict=[restriction.cited, own],
            )


def _exclusive(
    collected: Collected, program: Program, restriction: Restriction, atoms: frozenset[int], ties: Mapping[int, int]
) -> dict[int, np.ndarray]:
    named = named_values(program, restriction)
    slots = {*restriction.outputs, *(slot for slot, value in ties.items() if value in named)}
    free: dict[int, np.ndarray] = {}
    out: dict[int, np.ndarray] = {}

    def bar(node: int, layouts: Sequence[Layout]) -> None:
        key = id(layouts)
        if key not in free:
            free[key] = np.array([not atoms & {*(a for d in lay.dims for a in d), *lay.unreduced} for lay in layouts])
        out[node] = out[node] & free[key] if node in out else free[key]

    for side in (collected.definition, collected.form):
        for value, port in side.items():
            if value not in named:
                bar(port.node, port.layouts)
    for link in collected.links:
        returned = link.use is not None and link.use.op == PROGRAM and link.use.slot in slots
        if link.value not in named and not returned:
            bar(link.target.node, link.target.layouts)
    return out


def named_values(program: Program, restriction: Restriction) -> set[int]:
    """The values that a restriction addresses; arguments of regions count as the operands that they stand for."""
    named = set(restriction.values)
    for op, _ in program.walk():
        for value, arg in _bound(op):
            if value in named:
                named.add(arg)
    return named


def _bound(op: Op) -> list[tuple[int, int]]:
    """(operand, argument of a region that stands for it) of a region op."""
    if op.kind in ("scan", "shard_map"):
        return list(zip(op.operands, op.regions[0].args, strict=False))
    if op.kind == "while":
        test, body = op.regions
        n, m = op.attrs["cond_nconsts"], op.attrs["body_nconsts"]
        return [
            *zip(op.operands[:n], test.args, strict=False),
            *zip(op.operands[n:], body.args, strict=False),
            *zip(op.operands[n + m :], test.args[n:], strict=False),
        ]
    if op.kind == "cond":
        return [pair for region in op.regions for pair in zip(op.operands[1:], region.args, strict=False)]
    return []


def _no_combining(
    collected: Collected, program: Program, restriction: Restriction, atoms: frozenset[int]
) -> dict[int, np.ndarray]:
    """Ops in the region with collectives of their own: results combined by max or min, edges exchanged."""
    ops, out = program.ops, {}
    inside = set(restriction.ops)
    for index, node in enumerate(collected.nodes):
        if node.kind is not NodeKind.OP or node.op is None or node.space is None:
            continue
        if not restriction.whole and node.op not in inside:
            continue
        rule = ops[node.op].rule
        if rule is not None and (rule.combiner != "add" or rule.halos):
            own = [{*p.combine_atoms(rule), *_exchanged(p, rule)} for p in node.space.placements]
            out[index] = np.array([atoms.isdisjoint(each) for each in own])
    return out


def _exchanged(placement: Placement, rule: ShardingRule) -> set[int]:
    return {a for exchange in placement.exchanges(rule) for a in exchange.atoms}


def _as_stated(collected: Collected, mesh: AtomMesh, restriction: Restriction) -> dict[int, np.ndarray]:
    """Uses of what comes into a manual region, in its stated sharding."""
    wanted, inside = dict(restriction.entering), set(restriction.ops)
    known: dict[tuple[int, TensorSharding], np.ndarray] = {}
    out: dict[int, np.ndarray] = {}
    for link in collected.links:
        if link.use is None or link.use.op not in inside or link.value not in wanted:
            continue
        layouts, node = link.target.layouts, link.target.node
        key = (id(layouts), wanted[link.value])
        if key not in known:
            known[key] = np.array([satisfies(layout, wanted[link.value], mesh) for layout in layouts])
        out[node] = out[node] & known[key] if node in out else known[key]
    return out


def concerns(restriction: Restriction, link: Link) -> bool:
    """Whether a link lies in the region of a restriction: its value, the op that uses it, or the output it becomes."""
    if restriction.whole or link.value in restriction.values:
        return True
    if link.use is None:
        return False
    if link.use.op == PROGRAM:
        return link.use.slot in restriction.outputs
    return link.use.op in restriction.ops


def _barred(link: Link, restrictions: Sequence[Restriction], mesh: AtomMesh) -> Link:
    atoms = {a for r in restrictions if concerns(r, link) for name in r.axes for a in mesh.atoms_of[name]}
    return replace(link, barred=frozenset(atoms)) if atoms else link


def _local(link: Link, restrictions: Sequence[Restriction], mesh: AtomMesh) -> Link:
    """Inside of a manual region nothing moves over its axes."""
    atoms = {
        a
        for r in restrictions
        if link.value in r.inside and (link.use is None or link.use.op in r.ops)
        for name in r.axes
        for a in mesh.atoms_of[name]
    }
    return replace(link, local=frozenset(atoms)) if atoms else link


def _narrow(node: Node, mask: np.ndarray, restriction: Restriction) -> None:
    kept = np.arange(node.states) if node.allowed is None else node.allowed
    node.allowed = kept[mask[kept]]
    if not len(node.allowed):
        raise InfeasibleError(
            f"{restriction.cited}: it leaves no layout for {node.kind.value} {node.label} under the other statements",
            conflict=[restriction.cited],
        )
