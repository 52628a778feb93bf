"""The least that the links of a machine carry in a training step, whichever way its collectives are done.

A collective can be done in several ways: over links that its group shares with copies of what is moved, and over one
link after the other. What is gathered over some links first, then over the others, loads the latter with all of it and
the former with a part. Gradients that a group scatters and copies add may be scattered over the links of the copies
too; then the copies gather what they would have added. Parts of a collective (layers, say) may go different ways, so
the busiest link carries no less than the optimum of a small linear programme. Switches that can add are used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from autoshard.costmodels.machine import AxisPart, Machine
from autoshard.costmodels.step_collectives import Block, Move, distinct_devices

Load = dict[str, float]
"""Seconds by link, of a step or per byte."""
Group = Mapping[tuple[str, int], tuple[AxisPart, ...]]
"""The devices that a collective runs over, by the level and dimension of their links."""
_FEW = 1e-6  # weight of links that are not the busiest: of equal ways, those that load them least


def least_link_seconds(
    machine: Machine,
    parts: Mapping[str, tuple[str, ...]],
    moves: Sequence[Move],
    blocks: Sequence[Block],
    layers: float,
    microbatches: int,
) -> Load:
    """Seconds that each link is busy in a step, such that the busiest has the least to do.

    parts: the mesh axes of each part. layers: of one pipeline stage, for the weights in `blocks`.
    """
    machine = replace(machine, in_network_reduction=True)  # switches that can add do
    fixed: Load = {}
    for move in moves:
        if not move.of_weights:
            load = _drawn_load(machine, move, parts)
            if move.part == "tensor":
                load = half_of_a_sum(machine, load, _axes_of(machine, move, parts))
            _add(fixed, load, move.least * move.times * move.bytes)
    cut = group_on_links(machine, parts, ("fsdp", "fsdp_transpose"))
    needs: list[list[Load]] = []
    for block in blocks:
        copies = group_on_links(machine, parts, block.copies)
        once = layers * block.bytes
        if cut:
            gathers = [_spread(machine, "all_gather", _joined(cut, some)) for some in _choices(copies)]
            needs.append([_times(load, 2 * microbatches * once) for loads in gathers for load in loads])
            scatters = [_spread(machine, "reduce_scatter", _joined(cut, some)) for some in _choices(copies)]
            needs.append([_times(load, (microbatches - 1) * once) for loads in scatters for load in loads])
        needs.append([_times(load, once) for load in _sums(machine, cut, copies)])
    return _balanced(fixed, [_undominated(ways) for ways in needs if ways])


def group_on_links(machine: Machine, parts: Mapping[str, tuple[str, ...]], names: Sequence[str]) -> Group:
    """The devices along the axes of these parts, by link: an axis that lies on several links is several parts."""
    layout = dict(zip((axis for axis, _ in machine.axes), machine.layout, strict=True))
    found: dict[tuple[str, int], tuple[AxisPart, ...]] = {}
    for axis in (axis for name in names for axis in parts.get(name, ())):
        outside = 1
        for segment in layout[axis]:
            if segment.size > 1:
                link = (segment.level, segment.dim)
                found[link] = (*found.get(link, ()), AxisPart(axis, outside, segment.size))
            outside *= segment.size
    return found


def half_of_a_sum(machine: Machine, load: Load, group: tuple[AxisPart, ...]) -> Load:
    """The seconds per byte of a gather or of a scatter that come in pairs, in one of which switches may add."""
    adding = replace(machine, in_network_reduction=True).link_seconds("all_reduce", group)
    return {link: min(seconds, adding[link] / 2) for link, seconds in load.items()}


def _axes_of(machine: Machine, move: Move, parts: Mapping[str, tuple[str, ...]]) -> tuple[AxisPart, ...]:
    return machine.whole(*(a for p in move.over for a in parts.get(p, ()) if machine.axis_size(a) > 1))


def _drawn_load(machine: Machine, move: Move, parts: Mapping[str, tuple[str, ...]]) -> Load:
    """Seconds per byte: of copies that go to several devices of a domain, one crosses the links into it."""
    group = _axes_of(machine, move, parts)
    costs = machine.costs(move.kind, group)
    load = machine.link_seconds(move.kind, group)
    for index, cost in enumerate(costs):
        share = distinct_devices(move.drawn, prod(c.group for c in costs[index:])) / move.drawn
        for link in load:
            if link.split(":")[0] == cost.level:
                load[link] *= share
    return load


def _sums(machine: Machine, cut: Group, copies: Group) -> Iterator[Load]:
    """Ways to sum gradients over a group that cuts them and over copies, per byte of the whole.

    They are scattered over the group and some links of the copies, their parts are added over the other links, and
    what those copies share is gathered again: gradients, or the weights that zero1 has updated.
    """
    for some in _choices(copies):
        rest = {link: there for link, there in copies.items() if link not in some}
        after: Load = {}
        _add(after, machine.link_seconds("all_reduce", _all(rest)), 1 / _size(cut) / _size(some))
        _add(after, machine.link_seconds("all_gather", _all(some)), 1 / _size(cut))
        for scatter in _spread(machine, "reduce_scatter", _joined(cut, some)):
            load = dict(after)
            _add(load, scatter, 1.0)
            yield load


def _spread(machine: Machine, kind: str, group: Group) -> Iterator[Load]:
    """Ways to gather or scatter over a group, per byte: over all links at once, or over some and then the others."""
    yield machine.link_seconds(kind, _all(group))
    for some in _choices(group):
        if 0 < len(some) < len(group):
            load = dict(machine.link_seconds(kind, _all(some)))
            rest = {link: there for link, there in group.items() if link not in some}
            _add(load, machine.link_seconds(kind, _all(rest)), 1 / _size(some))
            yield load


def _choices(group: Group) -> Iterator[Group]:
    """The group on each set of its links, none and all included."""
    for count in range(len(group) + 1):
        for links in combinations(group, count):
            yield {link: group[link] for link in links}


def _joined(one: Group, two: Group) -> Group:
    return {link: (*one.get(link, ()), *two.get(link, ())) for link in (*one, *(k for k in two if k not in one))}


def _all(group: Group) -> tuple[AxisPart, ...]:
    return tuple(part for there in group.values() for part in there)


def _size(group: Group) -> int:
    return prod(part.size for part in _all(group))


def _add(load: Load, more: Load, factor: float) -> None:
    for link, seconds in more.items():
        load[link] = load.get(link, 0.0) + factor * seconds


def _times(load: Load, factor: float) -> Load:
    return {link: factor * seconds for link, seconds in load.items()}


def _undominated(ways: Sequence[Load]) -> list[Load]:
    """The ways that are better than every other on some link; of equal ones the first."""
    kept: list[Load] = []
    for way in sorted(ways, key=lambda load: sum(load.values())):
        if not any(all(s <= way.get(link, 0.0) * (1 + 1e-12) for link, s in other.items()) for other in kept):
            kept.append(way)
    return kept


def _balanced(fixed: Load, needs: Sequence[Sequence[Load]]) -> Load:
    """The loads where each need is met by a mix of its ways and the busiest link has the least to do."""
    total = dict(fixed)
    for ways in needs:
        if len(ways) == 1:
            _add(total, ways[0], 1.0)
    open_needs = [ways for ways in needs if len(ways) > 1]
    shares = _best_shares(total, open_needs) if open_needs else []
    for way, share in zip((way for ways in open_needs for way in ways), shares, strict=True):
        _add(total, way, share)
    return {link: seconds for link, seconds in total.items() if seconds > 0}


def _best_shares(fixed: Load, needs: Sequence[Sequence[Load]]) -> list[float]:
    """The share of each way, need by need, in the optimum of the linear programme."""
    import numpy as np
    from scipy.optimize import linprog

    ways = [way for need in needs for way in need]
    links = sorted({link for load in (fixed, *ways) for link in load})
    scale = max(sum(load.values()) for load in (fixed, *ways)) or 1.0
    loads = np.array([[way.get(link, 0.0) / scale for way in ways] for link in links])
    base = np.array([fixed.get(link, 0.0) / scale for link in links])
    owner = np.repeat(np.arange(len(needs)), [len(need) for need in needs])
    whole = np.hstack([owner[None, :] == np.arange(len(needs))[:, None], np.zeros((len(needs), 1))])
    found = linprog(
        [*(_FEW * loads.sum(axis=0)), 1.0],  # the last unknown is the busiest link's load
        A_ub=np.hstack([loads, -np.ones((len(links), 1))]),
        b_ub=-base,
        A_eq=whole,
        b_eq=np.ones(len(needs)),
        method="highs",
    )
    shares = np.clip(found.x[:-1], 0.0, 1.0)
    return [float(share) for share in shares / np.bincount(owner, shares)[owner]]
