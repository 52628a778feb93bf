"""Minimal sets of statements that cannot hold together: divide and conquer over a test of subsets (QuickXplain).

U. Junker, "QuickXplain: preferred explanations and relaxations for over-constrained problems", AAAI 2004. A set with k
members among n statements takes about 2k log(n/k) + 2k tests.
"""

from collections.abc import Callable, Sequence

Holds = Callable[[Sequence[int]], bool]
"""Whether some of the statements, given by their numbers in ascending order, can hold together."""


def minimal_conflict(statements: Sequence[int], holds: Holds) -> list[int]:
    """Statements that cannot hold together and of which none can be left out; earlier ones are preferred.

    `holds` must be false for all of `statements` and never turn true when statements are added. Where no subset at all
    holds, not even the empty one, the answer is empty.

    >>> minimal_conflict([0, 1, 2, 3], lambda kept: not {1, 3} <= set(kept))
    [1, 3]
    """
    if not holds(()):
        return []
    return sorted(_search([], False, list(statements), holds))


def _search(background: list[int], added: bool, among: list[int], holds: Holds) -> list[int]:
    """A minimal part of `among` that cannot hold together with `background`; `added`: `background` has just grown."""
    if added and not holds(sorted(background)):
        return []
    if len(among) == 1:
        return among
    half = len(among) // 2
    first, second = among[:half], among[half:]
    later = _search([*background, *first], True, second, holds)
    earlier = _search([*background, *later], bool(later), first, holds)
    return [*earlier, *later]
