"""Costs in 64 bits, added without an error: what a sum of costs may come to, and what is not allowed.

A cost that is kept is `NOT_ALLOWED`, or allowed and less than `MOST_TOTAL` from 0. So the sum of two costs fits, and it
is below `ALLOWED_BELOW` if and only if both are allowed. Steps of a certificate can move costs from node to node for as
long as it likes: where a sum leaves this range, the certificate is refused.
"""

import numpy as np

from autoshard.verify.certificate.stream import CertificateFault

FORBIDDEN_COST = 10**15
"""A cost of a network from this one on means that the choice is not allowed."""
NOT_ALLOWED = 2**61  # what such a cost is kept as
ALLOWED_BELOW = 2**60  # sums of costs that are allowed stay below this one
MOST_TOTAL = 2**59
"""Networks whose costs add up to so much cannot be checked in 64 bits; nor can a cost that steps add up to so much."""


def largest(values: np.ndarray) -> int:
    """How far from 0 some whole numbers are at most, in exact integers: the lowest of 64 bits has no opposite there."""
    return max(-int(values.min(initial=0)), int(values.max(initial=0)))


def summed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The sum of costs that are kept; what is not allowed in one of them is not allowed in the sum."""
    return as_kept(left + right)


def as_kept(total: np.ndarray) -> np.ndarray:
    """Sums of two costs, as costs that are kept. Raises `CertificateFault` where one is too far from 0."""
    barred = total >= ALLOWED_BELOW
    if not barred.any():
        return in_range(total)
    in_range(total[~barred])
    return np.where(barred, NOT_ALLOWED, total)


def in_range(costs: np.ndarray) -> np.ndarray:
    """Costs that are allowed, as they are. Raises `CertificateFault` where one is too far from 0."""
    if int(costs.min(initial=0)) <= -MOST_TOTAL or int(costs.max(initial=0)) >= MOST_TOTAL:
        raise CertificateFault(f"its steps add up costs to {MOST_TOTAL} or more, which cannot be checked in 64 bits")
    return costs
