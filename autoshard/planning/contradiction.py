"""Why there is no plan, for people: the smallest set of statements at odds, and what would make room in memory."""

from collections.abc import Sequence

from autoshard.errors import InfeasibleError
from autoshard.planning.least_memory import Least
from autoshard.planning.model import Problem
from autoshard.planning.relaxations import relaxations
from autoshard.planning.subsets import MinimalSet, Subsets

MOST_TENSORS = 8
"""How many tensors at the fullest moment are told."""


def contradiction(
    problem: Problem, *, achieved_bytes: int | None = None, reason: str = "", proved: bool = False
) -> InfeasibleError:
    """The error of a problem without a plan.

    achieved_bytes: the lowest peak of the plans that were found. reason: what the search said. proved: the search ruled
    out every plan within the memory limit.
    """
    subsets = Subsets(problem)
    found = subsets.smallest()
    cited = [problem.statements[n].cited for n in found.statements]
    if found.with_limit:
        return _memory(problem, subsets, found, cited, achieved_bytes, proved)
    if not cited:
        return InfeasibleError(f"the pins cannot hold together: {reason or 'no plan satisfies them'}")
    head = (
        "this statement cannot hold: no plan satisfies it"
        if len(cited) == 1
        else f"the pins cannot hold together: no plan satisfies these {len(cited)} statements"
    )
    tail = "change it" if len(cited) == 1 else "drop or change one of them"
    lines = [head, *(f"  {c}" for c in cited), *_unsettled(found), tail]
    return InfeasibleError("\n".join(lines), conflict=cited, facts={"minimal": found.settled, "proved": True})


def _unsettled(found: MinimalSet) -> list[str]:
    if found.settled:
        return []
    return ["  (whether some of them would do could not be settled in the time given)"]


def _memory(
    problem: Problem,
    subsets: Subsets,
    found: MinimalSet,
    cited: Sequence[str],
    achieved: int | None,
    searched: bool,
) -> InfeasibleError:
    limit = problem.memory_limit
    assert limit is not None
    kept = (*found.statements, subsets.limit_number)
    least = subsets.least(kept)
    proved = searched or least.bytes > limit
    everything = range(len(problem.statements))  # what is held is told under all statements, or it would break some
    if any(not mask.any() for mask in subsets.masks(everything).values()):
        everything = kept
    fullest = subsets.least(everything)
    there = subsets.memory.there(subsets.masks(everything), fullest.time)
    helping = relaxations(problem, subsets, found, achieved)
    words = f"memory limit of {limit} bytes per device"
    lines = [
        f"the {words} and the pins cannot hold together: " + _verdict(least, fullest, limit, achieved, cited, searched)
    ]
    if cited:
        lines += [f"  {words}", *(f"  {c}" for c in cited)]
    lines += _unsettled(found)
    lines.append(f"the fullest point is {fullest.where}, where at least these are held:")
    lines += [f"  {t.bytes:>15,} bytes  {t.name} {t.layout}" for t in there[:MOST_TENSORS]]
    if len(there) > MOST_TENSORS:
        rest = there[MOST_TENSORS:]
        lines.append(f"  {sum(t.bytes for t in rest):>15,} bytes  in {len(rest)} more")
    if helping:
        lines += ["what would make room:", *(f"  {r}" for r in helping)]
    else:
        lines.append("nothing that was tried makes room; use more devices, recompute more or drop statements")
    facts = {
        "limit_bytes": limit, "least_bytes": max(least.bytes, fullest.bytes), "achieved_bytes": achieved,
        "proved": proved, "where": fullest.where, "held": [t.to_dict() for t in there], "minimal": found.settled,
        "relaxations": [r.to_dict() for r in helping],
    }  # fmt: skip
    return InfeasibleError("\n".join(lines), conflict=[words, *cited], facts=facts)


def _verdict(
    least: Least, fullest: Least, limit: int, achieved: int | None, cited: Sequence[str], searched: bool
) -> str:
    under = "under these statements " if cited else ""
    if least.bytes > limit:
        text = f"{under}at least {least.bytes} bytes are live at once in every plan"
        if fullest.bytes > least.bytes:
            text += f" ({fullest.bytes} under all that is stated)"
    elif searched:
        text = (
            f"{under}no plan has room for its resharded copies, although {least.bytes} bytes would do for everything "
            "else (every plan was ruled out)"
        )
    else:
        text = (
            f"{under}no plan was found with room for its resharded copies, although {least.bytes} bytes would do for "
            "everything else (this is no proof that there is none)"
        )
    return text + (f"; the best plan found holds {achieved} bytes" if achieved is not None else "")
