"""Placements that a stage could not keep, as plan.json and the notes describe them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autoshard.errors import InfeasibleError, OutOfTimeError
from autoshard.formulation.fixed import Fixed, has, held
from autoshard.planning.decision import Decision
from autoshard.planning.keep import Dropped
from autoshard.planning.problem import Problem
from autoshard.program.schedule import Schedule
from autoshard.units import counted

MOST_PRICED = 8
"""Most dropped placements of one stage whose price is worked out, each by a solve of its own."""

MOST_NAMED = 3
"""Most placements that a note names."""

_REASONS = {
    "statements": "other statements forbid",
    "placements": "what was kept before them forbids",
    "memory": "the memory limit of {limit} bytes leaves no room beside what was kept before them for",
}

PROPAGATED, CHOSEN = "propagated", "chosen"
"""Where a placement came from: the stage's statements, or its own optimum."""

_WHOSE = {
    PROPAGATED: ("placement that follows from its statements", "placements that follow from its statements"),
    CHOSEN: ("placement that its optimum chose", "placements that its optimum chose"),
}

Solve = Callable[[Sequence[Fixed]], Decision]
"""The optimum of a stage with these placements and without the memory limit."""


def relaxed_words(dropped: Dropped, source: str, problem: Problem) -> dict[str, Any]:
    """An entry of a stage's ``relaxed``; its price is filled in later where one is worked out.

    ``axes`` are those on the factor or dimension, major to minor; the last one could not be kept behind the others.
    """
    piece = dropped.group[0]
    return {
        "what": _field(piece.what, piece.key, problem), "keys": [str(p.key) for p in dropped.group],
        "name": _name(piece.what, piece.key, problem), "on": piece.index,
        "axes": [problem.mesh.names[a] for a in dropped.order], "source": source, "why": dropped.why,
        "proved": dropped.proved, "price_s": None, "peak_bytes": None,
    }  # fmt: skip


def priced(
    words: list[dict[str, Any]],
    all_dropped: Sequence[Dropped],
    fixed: Sequence[Fixed],
    given: Fixed,
    cost_s: float,
    solve: Solve,
) -> dict[str, Any] | None:
    """Cost and peak of a stage with all placements that it wanted (`given`), were there no memory limit.

    None where the memory limit made it drop nothing, or that stage has no plan. Also fills in the entries of placements
    that the limit made it drop: how much more than `cost_s` the stage costs with the placement beside all that is kept,
    without the limit, and its peak then. These stay None where there is no such plan, and beyond the first
    `MOST_PRICED`.
    """
    lost = [k for k, dropped in enumerate(all_dropped) if dropped.why == "memory"]
    for k in lost[:MOST_PRICED]:
        decision = _solved(solve, [*fixed, all_dropped[k].fixed])
        if decision is not None:
            words[k]["price_s"], words[k]["peak_bytes"] = decision.objective_s - cost_s, decision.memory.peak_bytes
    whole = _solved(solve, [*fixed[:-1], given]) if lost else None
    return None if whole is None else {"cost_s": whole.objective_s, "peak_bytes": whole.memory.peak_bytes}


def _solved(solve: Solve, fixed: Sequence[Fixed]) -> Decision | None:
    try:
        return solve(fixed)
    except (InfeasibleError, OutOfTimeError):
        return None


def still_missing(
    entries: Sequence[Mapping[str, Any]], all_dropped: Sequence[Dropped], schedule: Schedule
) -> list[Mapping[str, Any]]:
    """The entries of placements that the final plan does not have; it may have some that no search found a plan for."""

    def there(dropped: Dropped) -> bool:
        piece = dropped.group[0]
        cut = getattr(dropped.fixed, piece.what)[piece.key]
        wanted = tuple(atoms[: atoms.index(piece.atom) + 1] if k == piece.index else () for k, atoms in enumerate(cut))
        return all(has(held(schedule, p.what, p.key), wanted) for p in dropped.group)

    return [entry for entry, drop in zip(entries, all_dropped, strict=True) if drop.proved or not there(drop)]


def relaxed_note(
    title: str, entries: Sequence[Mapping[str, Any]], limit: int | None, unlimited: Mapping[str, Any] | None
) -> str:
    """One line on the placements of a stage that could not be kept; empty where all are kept.

    unlimited: the result of `priced`.
    """
    told: list[str] = []
    for source, whose in _WHOSE.items():
        lost = [e for e in entries if e["source"] == source]
        if lost:
            count = sum(len(e["keys"]) for e in lost)
            said = f"{counted(count, whose[0], whose[1])} could not be kept (`relaxed`): "
            told.append(said + "; ".join(_lost(lost, limit, unlimited if source == PROPAGATED else None)))
    return f"{title}: {'; '.join(told)}" if told else ""


def _lost(lost: Sequence[Mapping[str, Any]], limit: int | None, unlimited: Mapping[str, Any] | None) -> list[str]:
    """Why placements could not be kept, and the first of them, in words."""
    parts: list[str] = []
    for why, reason in _REASONS.items():
        for proved in (True, False):
            some = [e for e in lost if e["why"] == why and e["proved"] is proved]
            if some:
                names = ", ".join(f"{', '.join(e['axes'])} on {e['name']}" for e in some[:MOST_NAMED])
                more = f" and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else ""
                doubt = "" if proved else ", as far as was searched (this is no proof)"
                parts.append(f"{reason.format(limit=limit)}{doubt}: {names}{more}")
    if unlimited is not None:
        parts.append(
            f"with all of them, and without the limit, the stage would cost {unlimited['cost_s']:.6g} s and hold "
            f"{unlimited['peak_bytes']} bytes"
        )
    return parts


def _field(what: str, key: int, problem: Problem) -> str:
    if what == "values":
        return "inputs" if key in problem.program.body.args else "boundaries"
    return {"ops": "ops", "forms": "shared", "outputs": "outputs"}[what]


def _name(what: str, key: int, problem: Problem) -> str:
    program = problem.program
    if what == "ops":
        return f"{program.ops[key].kind}:{key}"
    return program.output_names[key] if what == "outputs" else program.values[key].name
