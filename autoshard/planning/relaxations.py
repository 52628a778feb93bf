"""What would make room in memory: statements to drop, values to compute again, larger mesh axes, a larger limit.

Each relaxation is first judged by the bound on the least peak. Then a plan with it is searched for, so that suggestions
have been tried. Relaxations without a plan are not suggested; those that could not be tried, or for which no time was
left, are suggested as not tried. Where none helps alone, some are tried together.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoshard.costmodels.errors import ProfileError
from autoshard.costmodels.machine import Machine
from autoshard.costmodels.place import place_mesh
from autoshard.deadline import Deadline, clock
from autoshard.errors import AutoshardError, InfeasibleError, NotFoundError, OutOfTimeError
from autoshard.formulation.loose import Masks
from autoshard.placements.atoms import choose_atoms
from autoshard.planning.decide import decide
from autoshard.planning.least_memory import LeastMemory, Tensor
from autoshard.planning.model import build_model, collect_loosely
from autoshard.planning.parts import cuts_stated, split_at
from autoshard.planning.problem import Problem, check_shard_maps
from autoshard.planning.subsets import MinimalSet, Subsets
from autoshard.search_options import SearchOptions
from autoshard.sharding.mesh import Mesh

MOST_DOUBLINGS = 4
"""How often a mesh axis is doubled to see whether that makes room."""
MOST_SEARCHED_VALUES = 4000
"""Plans are searched for in programs of at most so many values; in larger ones the bound alone decides."""
SEARCH_EFFORT = 0.2
"""Effort of one such search."""
SEARCH_S = 4.0
"""Seconds that one such search may take."""
ALL_SEARCHES_S, LEAST_S = 12.0, 0.1
"""Seconds that all such searches may take together, and that one begun has at least."""
LIMITS = (1.1, 1.5, 2.0)
"""Multiples of the bound, or of the limit where that is more, that are tried as limits."""
NAMED = 3
"""How many of the values to compute again are named."""

_ORDER = ("drop", "recompute", "axis", "together", "limit")


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A change to the request that would make room in memory, in words.

    kind: ``drop`` (a statement), ``recompute``, ``axis`` (a larger mesh axis), ``together`` (several of these) or
    ``limit``. least_bytes: no plan has a lower peak with the change. found_bytes: the peak of a plan within the limit
    that was found with it; None where that was not tried. fits: there is such a plan or, where it was not tried, the
    bound leaves room for one.
    """

    kind: str
    text: str
    least_bytes: int
    fits: bool
    found_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The relaxation as plain data, for the facts of an error."""
        return {
            "kind": self.kind, "text": self.text, "least_bytes": self.least_bytes, "fits": self.fits,
            "found_bytes": self.found_bytes,
        }  # fmt: skip

    def __str__(self) -> str:
        if self.found_bytes is not None:
            return f"{self.text}: a plan with {self.found_bytes:,} bytes was found then"
        return f"{self.text}: may be enough, at least {self.least_bytes:,} bytes are needed then (not tried)"


@dataclass(frozen=True)
class _Try:
    """A changed problem, and the bound on its least peak under all statements that are left."""

    problem: Problem
    memory: LeastMemory
    masks: Masks

    @property
    def least_bytes(self) -> int:
        return self.memory.under(self.masks).bytes

    @staticmethod
    def of(problem: Problem) -> "_Try | None":
        """None where the statements cannot hold."""
        loose, liveness = collect_loosely(problem)
        masks = loose.masks(range(len(problem.statements)))
        if any(not mask.any() for mask in masks.values()):
            return None
        return _Try(problem, LeastMemory(loose, liveness), masks)


@dataclass
class _Searches:
    """Searches for plans that together stay within `left_s` seconds."""

    left_s: float = ALL_SEARCHES_S

    def judged(self, kind: str, text: str, tried: _Try, limit: int, bound: int) -> list[Relaxation]:
        """The relaxation in a list; an empty list where it does not make room.

        bound: on the least peak without the change.
        """
        least = tried.least_bytes
        if least > limit or (bound <= limit and least >= bound):
            return []
        settled, peak = self.peak_of_a_plan(tried.problem)
        return [] if settled and peak is None else [Relaxation(kind, text, least, True, peak)]

    def peak_of_a_plan(self, problem: Problem) -> tuple[bool, int | None]:
        """(whether the search came to an end, the peak of a plan within the limit)."""
        if self.left_s <= 0 or len(problem.program.values) > MOST_SEARCHED_VALUES:
            return False, None
        began = clock()
        try:
            model = build_model(problem, deadline=Deadline.after(self.left_s))
            part = min(SEARCH_S, max(LEAST_S, self.left_s - (clock() - began)))
            decision = decide(model, SearchOptions().rougher(1.0, SEARCH_EFFORT).within(part))
            if decision.interrupted:
                self.left_s = 0.0
            return True, decision.memory.peak_bytes
        except InfeasibleError:
            return True, None
        except NotFoundError:  # the search came to its end without a plan
            return True, None
        except OutOfTimeError:
            return False, None
        except KeyboardInterrupt:  # go on with what is known by now, without further searches
            self.left_s = 0.0
            return False, None
        finally:
            self.left_s -= clock() - began


def relaxations(
    problem: Problem, subsets: Subsets, smallest: MinimalSet, achieved: int | None, seconds: float | None = None
) -> list[Relaxation]:
    """Changes that make room: to statements, values to recompute, axes, several of these together, or the limit.

    Those that were tried come first. achieved: the peak of a plan under all statements, where one is known.
    seconds: what all searches may take together, where that is less than `ALL_SEARCHES_S`.
    """
    limit = problem.memory_limit
    assert limit is not None
    searches = _Searches() if seconds is None else _Searches(min(ALL_SEARCHES_S, seconds))
    now = _Try(problem, subsets.memory, subsets.masks(range(len(problem.statements))))
    bound = now.least_bytes
    out: list[Relaxation] = []
    for n in smallest.statements:
        rest = [k for k in range(len(problem.statements)) if k != n]
        tried = _Try(_without(problem, {n}), subsets.memory, subsets.masks(rest))
        out += searches.judged("drop", f"drop '{problem.statements[n].cited}'", tried, limit, bound)
    # before the axes, whose searches may take all the time: people first ask which limit would do
    limits = _limit(problem, bound, limit, achieved, searches)
    for axis in problem.mesh.mesh.axis_names:
        out += _axis(problem, axis, limit, bound, searches)
    again = _recomputed("recompute", "", now, limit) if bound > limit else []
    if not out and not again:
        out += _together(problem, smallest, limit, searches)
    if any(r.found_bytes is not None for r in out):
        out = [r for r in out if r.found_bytes is not None]
    out += again + limits
    return sorted(out, key=lambda r: (r.found_bytes is None, _ORDER.index(r.kind)))


def _without(problem: Problem, numbers: Collection[int]) -> Problem:
    """The problem less some of its statements."""
    pins, groups = len(problem.pins), len(problem.groups)
    return replace(
        problem,
        pins=tuple(p for k, p in enumerate(problem.pins) if k not in numbers),
        groups=tuple(g for k, g in enumerate(problem.groups) if pins + k not in numbers),
        restrictions=tuple(r for k, r in enumerate(problem.restrictions) if pins + groups + k not in numbers),
    )


def _axis(problem: Problem, axis: str, limit: int, bound: int, searches: _Searches) -> list[Relaxation]:
    """The smallest power of two by which an axis would have to grow, within `MOST_DOUBLINGS` and what the machine
    allows.
    """
    now = problem.mesh.mesh.axis_size(axis)
    for doublings in range(1, MOST_DOUBLINGS + 1):
        size = now * 2**doublings
        tried = _with_sizes(problem, {axis: size})
        if tried is None:
            return []
        relaxed = searches.judged("axis", f"a mesh axis {axis} of {size} instead of {now}", tried, limit, bound)
        if relaxed:
            return relaxed
    return []


def _with_sizes(problem: Problem, larger: dict[str, int]) -> _Try | None:
    """The problem with other sizes of axes; None where the machine has no such mesh or the statements cannot hold on
    it, as those on another mesh that name parts of axes and a `shard_map` of the program do not.
    """
    mesh = problem.mesh.mesh
    sizes = {name: larger.get(name, mesh.axis_size(name)) for name in mesh.axis_names}
    try:
        machine = place_mesh(problem.machine.profile, sizes, _links(problem.machine))
        here = [pin for pin in problem.pins if not pin.mesh]
        cuts = cuts_stated(here, problem.restrictions, Mesh.from_dict(sizes))
        stated = {name: split_at((sizes[name], *ends)) for name, ends in cuts.items()}
        atoms = choose_atoms(problem.program, Mesh.from_dict(sizes), {}, stated)
        check_shard_maps(problem.program, atoms, cuts)
        return _Try.of(replace(problem, mesh=atoms, machine=machine))
    except (AutoshardError, ProfileError):
        return None


def _links(machine: Machine) -> dict[str, str]:
    """The link level of each axis that lies on a single level other than the first."""
    first = machine.profile.levels[0].name
    named: dict[str, str] = {}
    for (axis, _), segments in zip(machine.axes, machine.layout, strict=True):
        levels = {s.level for s in segments if s.size > 1}
        if len(levels) == 1 and levels != {first}:
            named[axis] = levels.pop()
    return named


def _recomputed(kind: str, also: str, tried: _Try, limit: int) -> list[Relaxation]:
    """The values to compute again so that the bound leaves room, as few as possible; a plan cannot be tried for
    that.
    """
    chosen, least = tried.memory.recomputed(tried.masks, limit)
    return [Relaxation(kind, also + _again(chosen), least, True)] if chosen and least <= limit else []


def _again(chosen: Sequence[Tensor]) -> str:
    rest = len(chosen) - NAMED
    names = ", ".join(t.name for t in chosen[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return f"compute again instead of keeping {names} (jax.checkpoint, remat)"


def _together(problem: Problem, smallest: MinimalSet, limit: int, searches: _Searches) -> list[Relaxation]:
    """The first of a few combinations that makes room."""
    words = ", ".join(f"'{problem.statements[n].cited}'" for n in smallest.statements)
    dropped = _Try.of(_without(problem, smallest.statements)) if smallest.statements else None
    if dropped is not None:
        out = searches.judged("together", f"drop all of {words}", dropped, limit, limit + 1)
        if len(smallest.statements) > 1 and out:
            return out
        out = _recomputed("together", f"drop {words} and ", dropped, limit)
        if out:
            return out
    mesh = problem.mesh.mesh
    for doublings in range(1, MOST_DOUBLINGS + 1):
        larger = {axis: mesh.axis_size(axis) * 2**doublings for axis in mesh.axis_names}
        for sizes in (*({axis: size} for axis, size in larger.items()), larger):
            tried = _with_sizes(problem, sizes)
            if tried is None:
                continue
            text = "mesh axes " + ", ".join(f"{axis} of {size}" for axis, size in sizes.items())
            out = searches.judged("together", text, tried, limit, limit + 1) if len(sizes) > 1 else []
            out = out or _recomputed("together", f"{text} and ", tried, limit)
            if out:
                return out
    return []


def _limit(problem: Problem, bound: int, limit: int, achieved: int | None, searches: _Searches) -> list[Relaxation]:
    """The least of a few higher limits under which a plan is found, or the peak of a plan that is known."""
    for factor in LIMITS:
        tried = int(max(bound, limit + 1) * factor)
        if achieved is not None and tried >= achieved:
            break
        _, peak = searches.peak_of_a_plan(replace(problem, memory_limit=tried))
        if peak is not None:
            return [Relaxation("limit", f"a limit of {peak} bytes", bound, True, peak)]
    if achieved is not None and achieved > limit:
        return [Relaxation("limit", f"a limit of {achieved} bytes", bound, True, achieved)]
    return [Relaxation("limit", f"a limit of {bound} bytes or more", bound, True)] if bound > limit else []
