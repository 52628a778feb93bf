"""What a refusal says beside its proof, held against the problem made again: its limit, what is at odds, what is held.

What follows from the problem without a long search is derived again; the rest is named as taken on trust.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoshard.program.as_json import plain
from autoshard.questions.again import limit_of, limit_of_device

if TYPE_CHECKING:
    from autoshard.plan_record import RefusalRecord
    from autoshard.planning import Problem
    from autoshard.planning.subsets import Subsets

AT_ODDS = "that the statements that conflict names are enough for there to be no plan"
MINIMAL = "that none of the statements that conflict names could be left out (minimal)"
_DERIVED = ("proved", "limit_bytes", "limit_from", "missed_bytes", "least_bytes", "where", "held", "minimal")
"""Facts that are checked; what else a refusal tells is taken on trust, `reason` too."""


def told_faults(refusal: "RefusalRecord", problem: "Problem") -> tuple[list[str], list[str]]:
    """(What a refusal says that does not follow from its problem, lines on what was checked and what is believed).

    Its proof, that there is no plan within its limit, has been judged already.
    """
    from autoshard.planning.subsets import Subsets

    subsets = Subsets(problem)
    faults, trusted = list(_certificate(refusal)), list[str]()
    named = _named(refusal, subsets)
    if named is None:
        faults.append(f"conflict names what is not among the statements: {'; '.join(refusal.conflict)}")
    else:
        faults += _facts(refusal, subsets, named)
        faults += _conflict(refusal, subsets, named, trusted)
    left = [key for key in refusal.facts if key not in _DERIVED and refusal.facts[key] is not None]
    trusted += ["reason, the words", *(f"facts.{key}" for key in left)]
    return faults, [trust_line(trusted)]


def conflict_fault(refusal: "RefusalRecord", conflict: Sequence[str]) -> str:
    """What is wrong with what a refusal says whose statements leave no layout; empty where nothing is.

    conflict: what making the network again names.
    """
    if refusal.facts.get("proved", True) is not True:
        return f"facts.proved is {refusal.facts['proved']!r}; that no layout is left is found again"
    told = refusal.conflict
    if not conflict or (len(told) == len(conflict) and all(map(_cites, told, conflict))):
        return ""
    return f"conflict is said to be {'; '.join(refusal.conflict) or 'nothing'}; it is {'; '.join(conflict)}"


def _cites(text: str, cited: str) -> bool:
    """Whether `text` names a statement; places in Python, which come before, are not in the file."""
    return text == cited or text.endswith(f": {cited}")


def trust_line(trusted: Sequence[str]) -> str:
    """What rests on the word of a refusal alone."""
    return f"taken on trust: {', '.join(trusted)}"


def _certificate(refusal: "RefusalRecord") -> Iterator[str]:
    told = refusal.certificate
    if told is not None and (told.bound is not None or told.of != "refusal"):
        yield f"the certificate is said to be of a {told.of} with the bound {told.bound}; that of a refusal has none"


def _named(refusal: "RefusalRecord", subsets: "Subsets") -> list[int] | None:
    """The numbers of the statements that the conflict names; None where what it names is not among those asked for."""
    limit = subsets.problem.memory_limit
    known = [statement.cited for statement in subsets.problem.statements]
    known.append("" if limit is None else f"memory limit of {limit} bytes per device")
    numbers: list[int] = []
    for text in refusal.conflict:
        number = next((n for n, cited in enumerate(known) if cited and _cites(text, cited) and n not in numbers), None)
        if number is None:
            return None
        numbers.append(number)
    return numbers


def _facts(refusal: "RefusalRecord", subsets: "Subsets", named: Sequence[int]) -> Iterator[str]:
    """Facts that are not what follows from the problem."""
    facts, limit = refusal.facts, limit_of(refusal)
    wanted: dict[str, Any] = {"proved": True, "limit_bytes": limit}
    wanted["limit_from"] = "device" if limit_of_device(refusal) else "stated"
    achieved = facts.get("achieved_bytes")
    if limit is not None and "limit_bytes" in facts:
        wanted |= {"missed_bytes": None if achieved is None else achieved - limit, **_fullest(subsets, named)}
    for key in wanted.keys() & facts.keys():
        if plain(facts[key]) != plain(wanted[key]):
            yield f"facts.{key} is {_short(facts[key])}; the problem, made again, says {_short(wanted[key])}"
    if "limit_bytes" in facts and subsets.limit_number not in named:
        yield "conflict does not name the memory limit, which facts tell of"
    if limit is not None and achieved is not None and achieved <= limit:
        yield f"facts.achieved_bytes is {achieved}, a plan within the limit of {limit}; there is none"
    if any(_is_none(change, limit) for change in facts.get("relaxations", ())):
        yield "facts.relaxations has a change that makes no room"


def _fullest(subsets: "Subsets", named: Sequence[int]) -> dict[str, Any]:
    """The least that every plan holds, and what is held then."""
    from autoshard.planning.contradiction import fullest_point

    fullest, there = fullest_point(subsets.problem, subsets, sorted(named))
    least = max(subsets.least(sorted(named)).bytes, fullest.bytes)
    return {"least_bytes": least, "where": fullest.where, "held": [tensor.to_dict() for tensor in there]}


def _is_none(change: Mapping[str, Any], limit: int | None) -> bool:
    found = change["found_bytes"]
    return not change["fits"] or (
        found is not None and change["kind"] != "limit" and limit is not None and found > limit
    )


def _conflict(
    refusal: "RefusalRecord", subsets: "Subsets", named: Sequence[int], trusted: list[str]
) -> Iterator[str]:  # fmt: skip
    """Whether the statements named are at odds, and whether all are needed; what is not settled goes to `trusted`."""
    limited = subsets.problem.memory_limit is not None
    whole = len(named) == len(subsets.problem.statements) + limited
    if named and not whole and not subsets.surely_not(named):
        if subsets.holds(sorted(named)) and subsets.settled:
            yield f"conflict names {'; '.join(refusal.conflict)}; these can hold together"
            return
        if not subsets.settled:
            trusted.append(AT_ODDS)
    if not refusal.facts.get("minimal"):
        return
    for number, text in zip(named, refusal.conflict, strict=True):
        if subsets.surely_not([n for n in named if n != number]):
            yield f"conflict is said to be minimal; without '{text}' there is no plan either"
            return
    trusted.append(MINIMAL)


def _short(value: Any, most: int = 100) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}..."
