"""Sharding groups in a program's graph: which places are tied, as Shardy ties them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from autoshard.propagation.program.order import in_order

if TYPE_CHECKING:
    from autoshard.propagation.program.graph import Builder


def united(groups: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """The groups, those that share a value made one; each has the place of the first of them."""
    out: list[tuple[int, ...]] = []
    for group in groups:
        members = tuple(dict.fromkeys(group))
        met = [k for k, other in enumerate(out) if set(other) & set(members)]
        if not met:
            out.append(members)
            continue
        out[met[0]] = tuple(dict.fromkeys((*(v for k in met for v in out[k]), *members)))
        for k in reversed(met[1:]):
            del out[k]
    return out


def members_to_open(b: "Builder", groups: Iterable[Sequence[int]]) -> frozenset[int]:
    """Members of groups that start from different shardings: an open constraint behind each is tied in its place.

    b: the finished graph without groups. Groups are taken one after the other, since two may meet in a loop.
    """
    steps, holders = b.graph.steps, b.graph.holders
    opened: set[int] = set()
    for group in united(groups):
        members = [v for v in (_meant(b, v) for v in group) if v in b.holder_of and v not in b.copies]
        places = [b.holder_of[v] for v in members if b.holder_of[v] >= 0]
        given = [n for n in (holders[p] for p in places) if n >= 0 and not steps.specs[n].is_open_and_empty]
        if any(n != given[0] for n in given):
            opened.update(members)
        elif given:
            for place in places:
                holders[place] = given[0]
    return frozenset(opened)


def _meant(b: "Builder", value: int) -> int:
    """The member that a group ties: a constraint behind the value, where the value's other uses go through it."""
    value = b.meant(value)
    constraint = b.redirected.get(value)
    return value if constraint is None else constraint.results[0]


def tie(b: "Builder", groups: Iterable[Sequence[int]]) -> None:
    """Tie the members of groups, once all nodes are in place.

    An argument of a loop has no place of its own but that of the loop's result. It follows its group there, and does
    not lead it.
    """
    for members in united(groups):
        places = tuple(dict.fromkeys(p for v in members for p in _places(b, v)))
        for place in places:
            b.graph.groups[place] = places


def _places(b: "Builder", value: int) -> list[int]:
    value = _meant(b, value)
    if value in b.behind:
        return [b.behind[value]]
    if value not in b.carried:
        return b.copies.get(value) or ([b.holder_of[value]] if value in b.holder_of else [])
    graph, holder = b.graph, b.holder_of[value]
    place = graph.holder(None, graph.ranks[holder])
    graph.shared[place] = holder
    own = [use for use in b.touching[holder] if use[0] == b.carried[value]]
    graph.notify[place] = in_order(own, -1, is_edge=False)
    return [place]
