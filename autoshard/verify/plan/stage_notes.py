"""Do the notes say of the stages what the stages say of themselves: how many there are, and what could not be kept?

The notes are what a summary shows. Written down here once more, from what docs/statements.md says of `relaxed`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoshard.verify.plan.program import Findings
from autoshard.verify.plan.statements import limit_of

_COUNT = re.compile(r"^decided in (\d+) stages; ")
_LOST = "could not be kept (`relaxed`): "
_FROM = {
    "propagated": ("placement that follows from its statements", "placements that follow from its statements"),
    "chosen": ("placement that its optimum chose", "placements that its optimum chose"),
}
_FOR = {
    "statements": "other statements forbid",
    "placements": "what was kept before them forbids",
    "memory": "the memory limit of {limit} bytes leaves no room beside what was kept before them for",
}
_NAMED = 3


def check_stage_notes(plan: Any, findings: Findings) -> None:
    """Check that each stage which gave something up has its note, that no other one has, and the number of stages."""
    stages, limit = plan.get("stages") or [], limit_of(plan)
    wanted = [_note(stage, limit) for stage in stages if stage.get("relaxed")]
    told = [note for note in plan["notes"] if _LOST in note]
    for note in wanted:
        if note not in told:
            findings.add("stages", f"a stage gave up placements, and no note says so: {note}")
    for note in told:
        if note not in wanted:
            findings.add("stages", f"a note speaks of placements that no stage gave up so: {note}")
    counted = [int(found[1]) for found in map(_COUNT.match, plan["notes"]) if found]
    if counted != ([len(stages)] if plan.get("joint") is not None else []):
        said = f"{counted[0]} stages" if counted else "no stages"
        findings.add("stages", f"the notes speak of {said}; the plan has {len(stages)}")


def _note(stage: Mapping[str, Any], limit: int | None) -> str:
    parts: list[str] = []
    for source, (one, several) in _FROM.items():
        lost = [entry for entry in stage["relaxed"] if entry["source"] == source]
        if lost:
            count = sum(len(entry["keys"]) for entry in lost)
            why = [*_whys(lost, limit), *(_free(stage.get("unlimited")) if source == "propagated" else ())]
            parts.append(f"{count} {one if count == 1 else several} {_LOST}{'; '.join(why)}")
    return f"{stage['name'] or 'priority ' + str(stage['priority'])}: {'; '.join(parts)}"


def _whys(lost: Sequence[Mapping[str, Any]], limit: int | None) -> Iterator[str]:
    for why, words in _FOR.items():
        for proved, doubt in ((True, ""), (False, ", as far as was searched (this is no proof)")):
            some = [f"{', '.join(e['axes'])} on {e['name']}" for e in lost if (e["why"], e["proved"]) == (why, proved)]
            if some:
                more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
                yield f"{words.format(limit=limit)}{doubt}: {', '.join(some[:_NAMED])}{more}"


def _free(unlimited: Mapping[str, Any] | None) -> Iterator[str]:
    """What the stage would be with all that it wanted."""
    if unlimited is not None:
        yield (
            f"with all of them, and without the limit, the stage would cost {unlimited['cost_s']:.6g} s and hold "
            f"{unlimited['peak_bytes']} bytes"
        )
