"""How closely the rounds of a search within a memory limit look, one kind after the other."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

FEW_NODES = 50
"""In networks of up to so many nodes, all that a plan may hold at moments that were too full is decided in the
network at once, so that few rounds follow; where such a search has no end, all that plans may hold at any moment."""
SMALL_NODES = 400
"""In networks of up to so many nodes rough searches get little effort. In larger ones most of a search is preparation,
so only the one to the finer gap is made."""
_FULL_EFFORT = 1.0
"""The least effort with which few nodes are searched so: it makes networks larger, and with less effort their search
would not come to an answer."""
_ROUGH_GAPS = (0.25, 2e-2)
"""Gaps at which early searches within the memory limit may end: the first until an answer fits, the second until one
does again. To search closer would be in vain: an early network does not know yet what its answers hold too much of, and
most of the error comes from that."""
_ROUGH_SHARE = 0.1
"""The part of the effort that goes into one rough search of a small network. It ends after a first bound and a first
search: a proof takes longer than all of that, and a network that does not know yet what is too full says little."""
_BEFORE_ALL = 0.03
"""The part of the effort that goes into one search of a network of few nodes before it knows of all moments. Knowing of
them makes it larger, but often its proofs far shorter: nothing is left that could be held at another moment instead."""
_MORE = 1000.0
"""As many times the effort no search within a usual time limit spends."""


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of search. rough: the gap at which it may end; share: of the effort, and once a plan within the limit is
    known `known`, where that is another; proves: whether it goes on after a first bound and a first search; whole: the
    network knows of all that plans may hold at any moment; last: no other kind follows. dead_ends: it only looks
    whether anything fits, whatever that costs, and learns from so many of them at effort 1.
    """

    rough: float = 0.0
    share: float = 1.0
    known: float | None = None
    proves: bool = True
    whole: bool = False
    last: bool = False
    dead_ends: int = 0

    def effort(self, plan: object | None) -> float:
        """The share of the effort. plan: one within the limit that is known."""
        return self.share if plan is None or self.known is None else self.known


_WIDER, _WIDER_OF_SMALL = 1.25, 1.5
"""A network knows of all that plans may hold at moments that were too full where that makes its tables at most so many
times as large. Otherwise its answers move what they hold to where it does not know of it, round after round. Large ones
are held against the network that knows of nothing; small ones, whose rounds are proofs, against the one that knows of
what the answer holds there."""
SOON_NODES = 2_000
"""In networks of up to so many nodes, repeated layers counted one by one, it is soon worked out what several decisions
hold together. (Layers that share decisions count too: each is in memory at another time.)"""
KNOWN_NODES = 4_000
"""In networks of up to so many nodes, counted so, it is worked out before a plan is looked for within less than the
limit: networks that know of it have one sooner."""
CLOSELY, QUICKLY = Step(), Step(5e-3, proves=False)
"""A whole search, and one that ends after a first bound and a first search."""
GUIDING = Step(0.05, proves=False)
"""A search that is to say which states look best."""
AT_MOMENTS = Step(_ROUGH_GAPS[-1], _ROUGH_SHARE, proves=False)
"""A search for a first plan in a network that knows of the moments at which answers were too full."""
AT_ALL = Step(rough=1.0, share=0.05, proves=False)
"""How closely what fits, whatever it costs, is improved: by a few messages and a first search."""
ANYTHING, MOST_DEAD_ENDS_EFFORT = Step(dead_ends=6_000), 20.0
"""A search for anything that fits (a dead end takes some 1 ms in networks of 12,000 states), and the effort from which
it gets no more."""
WHOLE_ENTRIES = 4_000_000
"""That is looked at where the network without anything that several decisions hold has so many table entries at most:
with all of that it has up to some fifteen times as many."""


def steps(nodes: int, effort: float, endless: bool = False) -> Iterator[Step]:
    """The kinds of search for a network of so many nodes, in order.

    endless: the last one ends by a proof or the time.
    """
    if is_few(nodes, effort):
        kinds = [Step(share=_BEFORE_ALL), Step(whole=True)]
    elif nodes <= SMALL_NODES:
        kinds = [*(Step(gap, _ROUGH_SHARE, proves=False) for gap in _ROUGH_GAPS), Step()]
    else:
        kinds = [Step(_ROUGH_GAPS[-1]), Step()]
    if endless:
        # while no plan is known, an answer that does not fit says what else is too full
        kinds[-1] = replace(kinds[-1], known=_MORE)
        kinds.append(replace(kinds[-1], share=_MORE))
    return iter((*kinds[:-1], replace(kinds[-1], last=True)))


def is_few(nodes: int, effort: float) -> bool:
    """Whether all that plans may hold at moments that were too full is decided at once."""
    return nodes <= FEW_NODES and effort >= _FULL_EFFORT


def wider(small: bool) -> float:
    """How many times as many table entries as another one a network may have that knows of all that plans may hold at
    moments that were too full. small: of up to `SMALL_NODES` nodes.
    """
    return _WIDER_OF_SMALL if small else _WIDER
