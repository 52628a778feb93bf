"""In which order nodes are looked at again when the sharding of a value changes; it settles conflicts.

The order is that of the use lists of the MLIR module that a program is lowered to.
"""

from collections.abc import Sequence
from typing import NamedTuple

IN_CONDITION = 0
IN_BODY = 1
AROUND = 2
UNSEEN = 3


class Use(NamedTuple):
    """A use of a holder.

    region: for the edge behind a while loop, whether the use is of the condition's argument, of the body's or of the
    loop's result (`AROUND`, as for all other holders). `UNSEEN`: a change does not put the user on the worklist; such
    are operands of calls, as in Shardy.
    """

    holder: int
    region: int = AROUND


def in_order(uses: Sequence[tuple[int, int]], definer: int, *, is_edge: bool) -> tuple[int, ...]:
    """The nodes that a change of a holder concerns, the most urgent last.

    uses: (region, node) in program order. definer: the node that defines the holder, -1 for none. is_edge: it is a
    data-flow edge; these take uses over from results, in the reverse order.
    """
    around = [n for r, n in uses if r == AROUND]
    has_inner = len(around) < len(uses)
    if not is_edge:
        around.reverse()
    if definer >= 0:
        around.insert(0, definer)
    if has_inner:
        for region in (IN_BODY, IN_CONDITION):
            around[:0] = [n for r, n in reversed(uses) if r == region]
    return tuple(around)
