"""Why there is no plan, for people: none exists (proved, with the smallest set of statements at odds), or none was
found.

Of memory also what is held at the fullest point, and what would make room.
"""

from collections.abc import Sequence
from typing import Any

from autoshard.costs.memory import headroom
from autoshard.deadline import Deadline
from autoshard.errors import InfeasibleError, NotFoundError
from autoshard.planning.axis_orders import limits_of_refusals
from autoshard.planning.least_memory import Least, Tensor
from autoshard.planning.no_plan import limit_words, none_within
from autoshard.planning.problem import Problem
from autoshard.planning.relaxations import Relaxation, relaxations
from autoshard.planning.subsets import MinimalSet, Subsets

MOST_TENSORS = 8
"""How many tensors at the fullest moment are told."""
MOST_DROPPED = 16
"""Statements that are tried to be dropped one by one where none is proved to be at odds with the limit."""


def contradiction(
    problem: Problem,
    *,
    proved: bool,
    achieved_bytes: int | None = None,
    reason: str = "",
    seconds: float | None = None,
) -> InfeasibleError | NotFoundError:
    """The error of a problem without a plan.

    proved: whether the caller has proof that none exists; without it bounds on memory may still prove it, and else the
    answer is that none was found. achieved_bytes: the lowest peak of the plans that were seen. reason: what the search
    said. seconds: what searches for the smallest set and for what would make room may take together, where that is
    limited; the former have half of it.
    """
    until = Deadline.after(seconds)
    subsets = Subsets(problem, until.left(0.5))
    if not proved and not subsets.surely_none:
        return _none_found(problem, subsets, achieved_bytes, reason, until)
    error = _none(problem, subsets, achieved_bytes, reason, until)
    error.args = ("\n".join((str(error), *limits_of_refusals(problem))),)
    return error


def _none(
    problem: Problem, subsets: Subsets, achieved_bytes: int | None, reason: str, until: Deadline
) -> InfeasibleError:
    """Proved: which statements are at odds, and with the memory limit what would make room."""
    smallest = subsets.smallest()
    cited = [problem.statements[n].cited for n in smallest.statements]
    if smallest.with_limit:
        return _memory(problem, subsets, smallest, cited, achieved_bytes, until)
    if not cited:
        return InfeasibleError(f"no plan exists (proved): {reason or 'nothing satisfies all that is stated'}")
    head = (
        "this statement cannot hold (proved): no plan satisfies it"
        if len(cited) == 1
        else f"these {len(cited)} statements cannot hold together (proved): no plan satisfies them all"
    )
    tail = "change it" if len(cited) == 1 else "drop or change one of them"
    lines = [head, *(f"  {c}" for c in cited), *_unsettled(smallest), tail]
    return InfeasibleError("\n".join(lines), conflict=cited, facts={"minimal": smallest.settled})


def lifting(problem: Problem) -> list[str]:
    """Where the device's own limit comes from, and how to go beyond it."""
    if not problem.device_limit:
        return []
    usable, name = int(problem.machine.usable_bytes), problem.machine.profile.name
    return [
        f"no memory_limit is stated, so the limit is what a device of {name} has room for: it leaves {usable} bytes to "
        f"programs, and compilers reserve up to {headroom(problem.machine):.0%} beyond the peak",
        f"use more devices, state a memory_limit of your own ({usable} takes all that is left to programs), or lift it "
        "with memory_limit: none",
    ]


def _unsettled(smallest: MinimalSet) -> list[str]:
    if smallest.settled:
        return []
    return ["  (whether some of them would do could not be settled in the time given)"]


def _memory(
    problem: Problem, subsets: Subsets, smallest: MinimalSet, cited: Sequence[str], achieved: int | None,
    until: Deadline,
) -> InfeasibleError:  # fmt: skip
    words = limit_words(problem)
    least = subsets.least((*smallest.statements, subsets.limit_number))
    fullest, there = fullest_point(problem, subsets, (*smallest.statements, subsets.limit_number))
    helping = relaxations(problem, subsets, smallest, achieved, until.left())
    achieved = _lowest(achieved, helping)
    if cited:
        what = "this statement" if len(cited) == 1 else f"these {len(cited)} statements"
        head = f"the {words} and {what} cannot hold together (proved): "
    else:
        head = f"no plan exists within the {words} (proved): "
    lines = [head + _verdict(problem, least, fullest, achieved, cited), *(f"  {c}" for c in cited)]
    lines += [*(_unsettled(smallest) if cited else ()), *_held(fullest, there), *_room(problem, helping)]
    facts = {**_facts(problem, max(least.bytes, fullest.bytes), achieved, fullest, there, helping), "proved": True}
    plain = f"memory limit of {problem.memory_limit} bytes per device"
    return InfeasibleError("\n".join(lines), conflict=[plain, *cited], facts={**facts, "minimal": smallest.settled})


def _none_found(
    problem: Problem, subsets: Subsets, achieved: int | None, reason: str, until: Deadline
) -> NotFoundError:
    """No proof, so no statement is accused; what makes room is looked for all the same."""
    if problem.memory_limit is None:
        said = f" ({reason})" if reason else ""
        return NotFoundError(
            f"no plan was found, and it is not proved that none exists{said}; search with more effort or time, or drop "
            "statements"
        )
    everything = tuple(range(len(problem.statements)))
    fullest, there = fullest_point(problem, subsets, everything)
    helping = relaxations(problem, subsets, MinimalSet(everything[:MOST_DROPPED], True, False), achieved, until.left())
    achieved = _lowest(achieved, helping)
    lines = [none_within(limit_words(problem), problem.memory_limit, achieved, fullest.bytes, reason)]
    lines += [*_held(fullest, there), *_room(problem, helping), "or search with more effort or time"]
    return NotFoundError("\n".join(lines), facts=_facts(problem, fullest.bytes, achieved, fullest, there, helping))


def fullest_point(problem: Problem, subsets: Subsets, kept: Sequence[int]) -> tuple[Least, list[Tensor]]:
    """The bound under all statements, where they leave every value a layout (else under `kept`), and what is held."""
    everything: Sequence[int] = range(len(problem.statements))
    if any(not mask.any() for mask in subsets.masks(everything).values()):
        everything = kept
    fullest = subsets.least(everything)
    return fullest, subsets.memory.there(subsets.masks(everything), fullest.time)


def _held(fullest: Least, there: Sequence[Tensor]) -> list[str]:
    lines = [f"the fullest point is {fullest.where}, where at least these are held:"]
    lines += [f"  {t.bytes:>15,} bytes  {t.name} {t.layout}" for t in there[:MOST_TENSORS]]
    if len(there) > MOST_TENSORS:
        rest = there[MOST_TENSORS:]
        lines.append(f"  {sum(t.bytes for t in rest):>15,} bytes  in {len(rest)} more")
    return lines


def _room(problem: Problem, helping: Sequence[Relaxation]) -> list[str]:
    if helping:
        lines = ["what would make room:", *(f"  {r}" for r in helping)]
    else:
        lines = ["nothing that was tried makes room; use more devices, recompute more or drop statements"]
    return [*lines, *lifting(problem)]


def _lowest(achieved: int | None, helping: Sequence[Relaxation]) -> int | None:
    """A larger limit alone drops no statement, so its plan is one of those that were seen."""
    seen = [r.found_bytes for r in helping if r.kind == "limit" and r.found_bytes is not None]
    return min([*seen, *(() if achieved is None else (achieved,))], default=None)


def _verdict(problem: Problem, least: Least, fullest: Least, achieved: int | None, cited: Sequence[str]) -> str:
    limit = problem.memory_limit
    assert limit is not None
    under = "under these statements " if cited else ""
    if least.bytes > limit:
        text = f"{under}at least {least.bytes} bytes are live at once in every plan"
        if fullest.bytes > least.bytes:
            text += f" ({fullest.bytes} under all that is stated)"
    else:
        text = (
            f"{under}{least.bytes} bytes would do for what is decided once, but not for the copies that must be made "
            "beside it"
        )
    return text + (f"; the smallest plan seen holds {achieved} bytes" if achieved is not None else "")


def _facts(
    problem: Problem, least: int, achieved: int | None, fullest: Least, there: Sequence[Tensor],
    helping: Sequence[Relaxation],
) -> dict[str, Any]:  # fmt: skip
    limit = problem.memory_limit
    assert limit is not None
    return {
        "limit_bytes": limit, "limit_from": "device" if problem.device_limit else "stated", "least_bytes": least,
        "achieved_bytes": achieved, "missed_bytes": None if achieved is None else max(0, achieved - limit),
        "where": fullest.where, "held": [t.to_dict() for t in there], "relaxations": [r.to_dict() for r in helping],
    }  # fmt: skip
