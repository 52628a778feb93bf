"""Restrictions in the network: states that they leave, and reshards without some collectives or moves.

Each restriction says by itself what it allows (`autoshard.constraints.statement.Matched`); nothing here knows its kind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoshard.constraints import Restriction
from autoshard.constraints.statement import LayoutCheck, Place, PlacementCheck
from autoshard.errors import InfeasibleError
from autoshard.formulation.collect import Collected
from autoshard.formulation.model import Link, Node, NodeKind
from autoshard.program.program import Op, Program
from autoshard.program.schedule import Use
from autoshard.sharding.layout import AtomMesh, Layout


def restrict_nodes(
    collected: Collected,
    program: Program,
    mesh: AtomMesh,
    restrictions: Sequence[Restriction],
    ties: Mapping[int, int],
) -> None:
    """Keep the states that the restrictions allow, and mark the links whose reshards must do without some
    collectives.
    """
    for restriction in restrictions:
        for node, mask in state_masks(collected, program, mesh, restriction, ties).items():
            _narrow(collected.nodes[node], mask, restriction)
    for restriction in restrictions:
        restriction.check(program)
    if restrictions:
        serves = served(collected.links)
        still = [moves for r in restrictions if (moves := r.without_moves(program, ties)) is not None]
        collected.links[:] = [_marked(link, serves(link), restrictions, still, mesh) for link in collected.links]


def state_masks(
    collected: Collected, program: Program, mesh: AtomMesh, restriction: Restriction, ties: Mapping[int, int]
) -> dict[int, np.ndarray]:
    """Node -> which of its states a restriction allows, for the nodes where it forbids some."""
    masks: dict[int, np.ndarray] = {}
    placements = restriction.placements(mesh)
    if placements is not None:
        _check_placements(collected, program, placements, masks)
    layouts = restriction.layouts(program, mesh, ties)
    if layouts is not None:
        _check_layouts(collected, layouts, masks)
    return {node: mask for node, mask in masks.items() if not mask.all()}


def _check_placements(
    collected: Collected,
    program: Program,
    of: Callable[[Op], PlacementCheck | None],
    out: dict[int, np.ndarray],
) -> None:
    ops = program.ops
    for index, node in enumerate(collected.nodes):
        if node.kind is not NodeKind.OP or node.op is None or node.space is None:
            continue
        check = of(ops[node.op])
        if check is not None:
            _and(out, index, np.array([check(placement) for placement in node.space.placements]))


def _check_layouts(collected: Collected, of: Callable[[Place], LayoutCheck | None], out: dict[int, np.ndarray]) -> None:
    known: dict[tuple[int, LayoutCheck], np.ndarray] = {}

    def ask(place: Place, node: int, layouts: Sequence[Layout]) -> None:
        check = of(place)
        if check is None:
            return
        key = (id(layouts), check)
        if key not in known:
            known[key] = np.array([check(layout) for layout in layouts])
        _and(out, node, known[key])

    for side in (collected.definition, collected.form):
        for value, port in side.items():
            ask(Place(value), port.node, port.layouts)
    for link in collected.links:
        ask(Place(link.value, link.use), link.target.node, link.target.layouts)


def _and(masks: dict[int, np.ndarray], node: int, mask: np.ndarray) -> None:
    masks[node] = masks[node] & mask if node in masks else mask


def served(links: Sequence[Link]) -> Callable[[Link], tuple[Use | None, ...]]:
    """For each link the uses that its reshards serve: the way to the form that uses share serves each of them."""
    uses_of: dict[int, list[Use]] = {}
    for link in links:
        if link.use is not None:
            uses_of.setdefault(link.value, []).append(link.use)
    return lambda link: (link.use,) if link.use is not None else (None, *uses_of.get(link.value, ()))


def _marked(
    link: Link,
    uses: Sequence[Use | None],
    restrictions: Sequence[Restriction],
    still: Sequence[Callable[[int, Use | None], Iterable[str]]],
    mesh: AtomMesh,
) -> Link:
    """The link with the atoms that its reshards must not use in collectives (`barred`), or not move at all
    (`local`). uses: those that the reshards serve. still: of restrictions, the axes that do not move on a way.
    """
    barred = frozenset(
        a
        for r in restrictions
        for use in uses
        for name in r.without_collectives(link.value, use)
        for a in mesh.atoms_named(name)
    )
    local = frozenset(a for axes_of in still for name in axes_of(link.value, link.use) for a in mesh.atoms_named(name))
    return replace(link, barred=barred, local=local) if barred or local else link


def _narrow(node: Node, mask: np.ndarray, restriction: Restriction) -> None:
    kept = np.arange(node.states) if node.allowed is None else node.allowed
    node.allowed = kept[mask[kept]]
    if not len(node.allowed):
        raise InfeasibleError(
            f"{restriction.cited}: it leaves no layout for {node.kind.value} {node.label} under the other statements",
            conflict=[restriction.cited],
        )
