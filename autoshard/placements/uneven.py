"""Which factors may be cut by axes that do not divide them (S0.53); the lowering pads them.

Padding costs work and memory on every device (local sizes are rounded up), so it is offered only where an axis does
not divide the factor anyway, and where it wastes at most a quarter.
"""

from autoshard.program.rule import ShardingRule
from autoshard.rules.elementwise import NONLINEAR, SUMS, UNARY_LINEAR

MAX_WASTE = 1.25
"""Largest padded size over true size that is considered."""

_KINDS = frozenset(
    {
        *UNARY_LINEAR, *SUMS, *NONLINEAR, "mul", "div", "select_n", "broadcast_in_dim", "transpose", "squeeze",
        "expand_dims", "dot_general", "reduce_sum", "reduce_max", "reduce_min",
    }
)  # fmt: skip


def uneven_factors(kind: str, rule: ShardingRule) -> frozenset[int]:
    """Factors of an op of this kind that may be padded: alone in each of their dimensions."""
    if kind not in _KINDS:
        return frozenset()
    compound = {f for t in (*rule.operands, *rule.results) for d in t if len(d) > 1 for f in d}
    return frozenset(rule.shardable) - compound


def may_pad(size: int, parts: int, last: int) -> bool:
    """Whether `size` elements may be cut in `parts` with padding (S0.54, and the limit on waste).

    last: size of the minor-most axis of the cut.

    >>> may_pad(7, 8, 8), may_pad(50257, 8, 8), may_pad(3, 8, 4)
    (True, True, False)
    """
    padded = -(-size // parts) * parts
    return parts // last < size and padded <= MAX_WASTE * size
