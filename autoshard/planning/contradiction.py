"""Why there is no plan, for people: the smallest set of statements at odds, and what would make room in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoshard.errors import AutoshardError, InfeasibleError
from autoshard.planning.least_memory import Least, LeastMemory, Tensor
from autoshard.planning.model import Problem, collect_loosely
from autoshard.planning.subsets import MinimalSet, Subsets
from autoshard.sharding.mesh import Mesh
from autoshard.strategies.atoms import choose_atoms

MOST_DOUBLINGS = 3
"""How often a mesh axis is doubled to see whether that makes room."""
MOST_TENSORS = 8
"""How many tensors at the fullest moment are told."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Something that could be given up: in words, the least peak then, and whether the limit holds then.

    kind: ``drop`` (a statement), ``axis`` (a larger mesh axis), ``recompute``, ``limit``. fits: by the bound; a plan
    needs room for copies too.
    """

    kind: str
    text: str
    least_bytes: int
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "least_bytes": self.least_bytes, "fits": self.fits}


def contradiction(problem: Problem, *, achieved_bytes: int | None = None, reason: str = "") -> InfeasibleError:
    """The error of a problem without a plan.

    achieved_bytes: the lowest peak of the plans that were found. reason: what the search said.
    """
    subsets = Subsets(problem)
    found = subsets.smallest()
    cited = [problem.statements[n].cited for n in found.statements]
    if found.with_limit:
        return _memory(problem, subsets, found, cited, achieved_bytes)
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
    problem: Problem, subsets: Subsets, found: MinimalSet, cited: Sequence[str], achieved: int | None
) -> InfeasibleError:
    limit = problem.memory_limit
    assert limit is not None
    kept = (*found.statements, subsets.limit_number)
    least = subsets.least(kept)
    proved = least.bytes > limit
    there = subsets.memory.there(subsets.masks(kept), least.time)
    relaxations = [*_drops(problem, subsets, found, limit), *_axes(problem, found, limit)]
    relaxations += _recompute(there, least, limit)
    if proved:
        relaxations.append(Relaxation("limit", f"a limit of {least.bytes} bytes or more", least.bytes, True))
    words = f"memory limit of {limit} bytes per device"
    lines = [f"the {words} and the pins cannot hold together: " + _verdict(least, limit, achieved, cited)]
    if cited:
        lines += [f"  {words}", *(f"  {c}" for c in cited)]
    lines += _unsettled(found)
    lines.append(f"the fullest point is {least.where}, where at least these are held:")
    lines += [f"  {t.bytes:>15,} bytes  {t.name} {t.layout}" for t in there[:MOST_TENSORS]]
    if len(there) > MOST_TENSORS:
        rest = there[MOST_TENSORS:]
        lines.append(f"  {sum(t.bytes for t in rest):>15,} bytes  in {len(rest)} more")
    helping = [r for r in relaxations if r.fits]
    if helping:
        lines.append("what would make room:")
        lines += [f"  {r.text}: at least {r.least_bytes:,} bytes are needed then" for r in helping if r.kind != "limit"]
        lines += [f"  {r.text}" for r in helping if r.kind == "limit"]
    else:
        lines.append("no single change that was tried makes room; use more devices, recompute more or drop statements")
    facts = {
        "limit_bytes": limit, "least_bytes": least.bytes, "achieved_bytes": achieved, "proved": proved,
        "where": least.where, "held": [t.to_dict() for t in there], "minimal": found.settled,
        "relaxations": [r.to_dict() for r in relaxations],
    }  # fmt: skip
    return InfeasibleError("\n".join(lines), conflict=[words, *cited], facts=facts)


def _verdict(least: Least, limit: int, achieved: int | None, cited: Sequence[str]) -> str:
    under = "under these statements " if cited else ""
    if least.bytes > limit:
        text = f"{under}at least {least.bytes} bytes are live at once in every plan"
    else:
        text = (
            f"{under}no plan was found with room for its resharded copies, although {least.bytes} bytes would do for "
            "everything else (this is no proof that there is none)"
        )
    return text + (f"; the best plan found holds {achieved} bytes" if achieved is not None else "")


def _drops(problem: Problem, subsets: Subsets, found: MinimalSet, limit: int) -> list[Relaxation]:
    out = []
    for n in found.statements:
        everything = [k for k in range(len(problem.statements)) if k != n]
        least = subsets.least(everything)
        out.append(
            Relaxation("drop", f"drop '{problem.statements[n].cited}'", least.bytes, subsets.holds_all_but(n, limit))
        )
    return out


def _axes(problem: Problem, found: MinimalSet, limit: int) -> list[Relaxation]:
    """The smallest power of two by which each axis would have to grow, up to a few."""
    out = []
    mesh = problem.mesh.mesh
    for axis in mesh.axis_names:
        for doublings in range(1, MOST_DOUBLINGS + 1):
            size = mesh.axis_size(axis) * 2**doublings
            least = _least_with(problem, found, axis, size)
            if least is None:
                break
            if least <= limit:
                text = f"a mesh axis {axis} of {size} instead of {mesh.axis_size(axis)}"
                out.append(Relaxation("axis", text, least, True))
                break
    return out


def _least_with(problem: Problem, found: MinimalSet, axis: str, size: int) -> int | None:
    """The bound on the peak with another size of an axis; None where the program cannot be cut like that."""
    mesh = problem.mesh.mesh
    sizes = {name: size if name == axis else mesh.axis_size(name) for name in mesh.axis_names}
    try:
        larger = Mesh.from_dict(sizes)
        atoms = choose_atoms(problem.program, larger, {})
        loose, liveness = collect_loosely(replace(problem, mesh=atoms))
    except AutoshardError:
        return None
    masks = loose.masks(range(len(problem.statements)))
    if any(not mask.any() for mask in masks.values()):
        return None
    return LeastMemory(loose, liveness).under(masks).bytes


def _recompute(there: Sequence[Tensor], least: Least, limit: int) -> list[Relaxation]:
    kept = [t for t in there if t.kept]
    if not kept:
        return []
    without = least.bytes - sum(t.bytes for t in kept)
    names = ", ".join(t.name for t in kept[:3]) + (f" and {len(kept) - 3} more" if len(kept) > 3 else "")
    text = f"compute again instead of keeping {names} (jax.checkpoint, remat)"
    return [Relaxation("recompute", text, without, without <= limit)]
