"""Searching the sizes of a mesh too: every way to write the number of devices as a product that the machine allows.

Each mesh is first solved with little effort, which gives a plan and a bound. Meshes whose bound is no better than the
best plan found are ruled out, with proof. The others are solved in full, the most promising first. The plans found on
the way, and a few searches under tighter memory limits, make the frontier of step time against memory.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, NoReturn, TypeVar

from autoshard import interrupts
from autoshard.costmodels.machine import Machine
from autoshard.errors import (
    AutoshardError,
    InfeasibleError,
    InputError,
    NotFoundError,
    OutOfTimeError,
    UnsupportedError,
)
from autoshard.plan_record import MeshPoint, MeshSearched, MeshTried, PlanRecord
from autoshard.planning import Decision, Problem, build_model, decide
from autoshard.planning.memory_cap import memory_cap
from autoshard.search_options import SearchOptions

Sizes = Mapping[str, int]

FIRST_EFFORT = 0.1
"""Effort of the first look at a mesh, as a share of the effort of solving it in full."""
FIRST_SHARE, LAST_SHARE = 0.5, 0.7
"""Shares of the time limit: of the whole for the first look at all meshes, then of the rest for solving in full."""
FIRST_GAP = 1e-2
"""Gap at which the first look at a mesh may end."""
TIGHTER_SHARE = 0.3
"""Share of the remaining time that each search for the frontier may take."""
TIGHTER = (0.75, 0.5)
"""Memory limits of the searches for the frontier, as shares of the best plan's peak."""
FRONTIER_MESHES = 2
"""Number of meshes that are searched under each of these limits."""
LEAST_S = 0.5


def _tried(sizes: Sizes, status: str, *figures: Any, bound_s: float | None = None, reason: str = "") -> MeshTried:
    """The record of one mesh. figures: objective in seconds, bound in seconds and peak bytes, where there is a plan."""
    objective_s, bound_s, peak = figures or (None, bound_s, None)
    return MeshTried(
        mesh=dict(sizes), status=status, objective_s=objective_s, bound_s=bound_s, peak_bytes=peak, reason=reason
    )


def _point(sizes: Sizes, seconds: float, peak: int, limit: int | None) -> MeshPoint:
    return MeshPoint(mesh=dict(sizes), objective_s=seconds, peak_bytes=peak, memory_limit=limit)


def frontier(points: Sequence[MeshPoint]) -> list[MeshPoint]:
    """The points that no other point beats in both time and memory, quickest first.

    >>> [p.peak_bytes for p in frontier([_point({}, t, b, None) for t, b in ((2.0, 5), (1.0, 9), (3.0, 7))])]
    [9, 5]
    """
    out: list[MeshPoint] = []
    for point in sorted(points, key=lambda p: (p.objective_s, p.peak_bytes, tuple(p.mesh.values()))):
        if not out or point.peak_bytes < out[-1].peak_bytes:
            out.append(point)
    return out


P = TypeVar("P", bound=PlanRecord)


def search_mesh(
    allowed: Sequence[Sizes],
    refused: Sequence[tuple[Sizes, str]],
    ask: Callable[[Sizes], Problem],
    solve: Callable[[Sizes, SearchOptions, Decision | None], P],
    options: SearchOptions,
    *,
    names_count: bool = False,
    solver_memory: int | None = None,
    tighter: bool = True,
) -> P:
    """The best plan over all sizes, with what was tried in `PlanRecord.mesh_search`.

    allowed: sizes to search. refused: other sizes, with the machine's reasons. ask: the problem on a mesh. solve: the
    plan on a mesh, by a search with these options or from a decision that is made already. Ctrl-C gives the best plan
    by then. names_count: whether other names of the axes give another problem whatever is stated (stages by names of
    strategies). tighter: whether searches within less memory than the best plan takes add points to the frontier.

    Raises `InputError` where what is asked fits no mesh (a pin that matches nothing), `InfeasibleError` where it is
    proved that no mesh has a plan, `NotFoundError` where no plan was found and
    that is not proved for every mesh, `OutOfTimeError` where the time ended before any plan was found,
    `UnsupportedError` where the program can be planned on none of them.
    """
    with interrupts.noticed() as ctrl_c:
        run = _Search(ask, solve, options, names_count, solver_memory, ctrl_c)
        try:
            run.first_look(allowed)
            best = run.in_full()
            if tighter:
                run.tighten(best)
        except KeyboardInterrupt:
            best = run.stopped(allowed)
    tried = [run.of(s) for s in allowed]
    records = [*tried, *(_tried(s, "cannot be", reason=reason) for s, reason in refused)]
    bounds = [t.bound_s for t in tried if t.bound_s is not None]
    unknown = any(t.status in _OPEN and t.bound_s is None for t in tried)
    searched = MeshSearched(
        devices=math.prod(allowed[0].values()),
        axes=tuple(allowed[0]),
        bound_s=0.0 if unknown else min(bounds, default=0.0),
        tried=tuple(records),
        frontier=tuple(frontier(run.points)),
    )
    return replace(best, mesh_search=searched)


_OPEN = ("out of time", "none found")
"""Statuses of a mesh without a plan for which it is not proved that there is none."""


def _without(error: OutOfTimeError) -> str:
    return "none found" if isinstance(error, NotFoundError) else "out of time"


def _key(sizes: Sizes) -> tuple[int, ...]:
    return tuple(sizes.values())


def _text(sizes: Sizes) -> str:
    return " x ".join(f"{axis}={size}" for axis, size in sizes.items())


class _Search(Generic[P]):
    """State of one search over meshes."""

    def __init__(
        self,
        ask: Callable[[Sizes], Problem],
        solve: Callable[[Sizes, SearchOptions, Decision | None], P],
        options: SearchOptions,
        names_count: bool,
        solver_memory: int | None,
        ctrl_c: interrupts.Noticed,
    ) -> None:
        self.ask, self.solve, self.options, self.ctrl_c = ask, solve, options, ctrl_c
        self.names_count, self.solver_memory = names_count, solver_memory
        self.tried: dict[tuple[int, ...], MeshTried] = {}
        self.points: list[MeshPoint] = []
        self.twins: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.looked: tuple[Sizes, Decision] | None = None  # the best of the first look
        self.best: P | None = None
        self.unsupported: list[UnsupportedError] = []  # meshes that a `shard_map` of the program is not for
        self.faulty: dict[tuple[int, ...], InputError] = {}  # meshes that what was asked does not fit, or none does

    def of(self, sizes: Sizes) -> MeshTried:
        """The record of a mesh; a mesh that differs from another in names only has the figures of that one."""
        tried = self.tried[_key(sizes)]
        twin = self.twins.get(_key(sizes))
        if twin is None:
            return tried
        same = self.tried[twin]
        return tried.model_copy(update={k: getattr(same, k) for k in ("objective_s", "bound_s", "peak_bytes")})

    def first_look(self, allowed: Sequence[Sizes]) -> None:
        """A plan and a bound for every mesh. Meshes with fewer axes come first: their networks are small and give
        bounds to beat.
        """
        known: dict[object, Sizes] = {}
        order = sorted(allowed, key=lambda s: (sum(n > 1 for n in s.values()), tuple(-n for n in s.values())))
        for number, sizes in enumerate(order):
            self.ctrl_c.check()  # also where a refusal was explained without further searches
            self.options.say(f"mesh {_text(sizes)}")
            try:
                problem = self.ask(sizes)
                alike = None if problem.statements or self.names_count else _shape(problem.machine)
                if alike is not None and alike in known:
                    self.tried[_key(sizes)] = _tried(sizes, "alike", reason=_text(known[alike]))
                    self.twins[_key(sizes)] = _key(known[alike])
                    continue
                known.setdefault(alike, sizes)
                share = FIRST_SHARE / (len(order) - number) if number else FIRST_SHARE
                self.tried[_key(sizes)] = self._look(sizes, problem, None, share)
            except OutOfTimeError as error:
                self.tried[_key(sizes)] = _tried(sizes, _without(error), reason=str(error))
            except (InfeasibleError, InputError, UnsupportedError) as error:
                self.tried[_key(sizes)] = _tried(sizes, "cannot be", reason=str(error))
                self.unsupported += [error] if isinstance(error, UnsupportedError) else []
                self.faulty |= {_key(sizes): error} if isinstance(error, InputError) else {}

    def _look(self, sizes: Sizes, problem: Problem, limit: int | None, share: float) -> MeshTried:
        model = build_model(
            problem if limit is None else replace(problem, memory_limit=limit), deadline=self.options.deadline
        )
        with memory_cap(self.solver_memory):
            quick = replace(self.options.rougher(FIRST_GAP, FIRST_EFFORT), progress=None)
            decision = decide(model, quick.part(share, least=LEAST_S))
        peak = decision.memory.peak_bytes
        self.points.append(_point(dict(sizes), decision.objective_s, peak, limit))
        if limit is None and (self.looked is None or decision.objective_s < self.looked[1].objective_s):
            self.looked = sizes, decision
        if decision.interrupted:
            if limit is None:
                self.tried[_key(sizes)] = _tried(
                    dict(sizes), decision.status, decision.objective_s, decision.bound_s, peak
                )
            raise KeyboardInterrupt
        return _tried(dict(sizes), decision.status, decision.objective_s, decision.bound_s, peak)

    def in_full(self) -> P:
        """The best plan: meshes that are not ruled out by their bounds are solved in full, the most promising first."""
        waiting = sorted(
            (t for t in self.tried.values() if t.objective_s is not None),
            key=lambda t: (t.objective_s or 0.0, _key(t.mesh)),
        )
        if not waiting:
            self._nothing()
        for number, tried in enumerate(waiting):
            self.ctrl_c.check()
            assert tried.bound_s is not None
            # the first look gives no plan yet, and its strategy is always the joint optimum
            if self.best is not None and tried.bound_s >= self.best.objective_s * (1 - 1e-9):
                status = "pruned" if tried.status != "optimal" else "optimal"
                self.tried[_key(tried.mesh)] = tried.model_copy(update={"status": status})
                continue
            self.options.say(f"mesh {_text(tried.mesh)} in full")
            share = LAST_SHARE if number == 0 else LAST_SHARE / 2
            try:
                plan = self.solve(tried.mesh, self.options.part(share, least=LEAST_S), None)
            except NotFoundError as error:  # from stages, say, which the first look does without
                self.tried[_key(tried.mesh)] = _tried(
                    tried.mesh, "none found", bound_s=tried.bound_s, reason=str(error)
                )
                self.points = [p for p in self.points if p.mesh != tried.mesh]
                continue
            except OutOfTimeError as error:
                self.tried[_key(tried.mesh)] = tried.model_copy(update={"status": "out of time", "reason": str(error)})
                continue
            except (InfeasibleError, InputError) as error:  # the first look does without stages and private copies
                self.tried[_key(tried.mesh)] = _tried(tried.mesh, "cannot be", reason=str(error))
                self.faulty |= {_key(tried.mesh): error} if isinstance(error, InputError) else {}
                self.points = [p for p in self.points if p.mesh != tried.mesh]
                continue
            peak = plan.memory.peak_bytes
            self.points.append(_point(dict(tried.mesh), plan.objective_s, peak, None))
            bound = max(tried.bound_s, min(plan.bound_s, plan.objective_s))
            self.tried[_key(tried.mesh)] = _tried(tried.mesh, plan.status, plan.objective_s, bound, peak)
            if self.best is None or plan.objective_s < self.best.objective_s:
                self.best = plan
            if plan.run.get("interrupted"):
                raise KeyboardInterrupt
        return self._nothing() if self.best is None else self.best

    def stopped(self, allowed: Sequence[Sizes]) -> P:
        """The best plan by the time the user stops the search; meshes that were not searched are listed as such."""
        if self.best is None and self.looked is None:
            raise KeyboardInterrupt
        for sizes in allowed:
            self.tried.setdefault(_key(sizes), _tried(sizes, "out of time", reason="the run was stopped"))
        note = "the run was stopped before the search over meshes was done: this is the best plan by then"
        best = self.best
        if best is None:
            assert self.looked is not None
            best = self.solve(self.looked[0], self.options.within(None), self.looked[1])
        return replace(best, notes=(*best.notes, note), run={**best.run, "interrupted": True})

    def _nothing(self) -> NoReturn:
        if self.tried and len(self.unsupported) == len(self.tried):
            raise self.unsupported[0]
        if self.faulty.keys() == {key for key, t in self.tried.items() if t.status != "alike"}:
            raise self._fault()
        late = [t for t in self.tried.values() if t.status == "out of time"]
        if late:
            raise OutOfTimeError(
                f"no plan on any of {len(self.tried)} meshes was found in the time given, and it is not proved that "
                "none exists; raise the time limit, or give sizes"
            )
        reasons = "\n".join(f"  {_text(t.mesh)}: {t.reason.splitlines()[0]}" for t in list(self.tried.values())[:6])
        if any(t.status == "none found" for t in self.tried.values()):
            raise NotFoundError(
                f"no plan was found on any of the {len(self.tried)} meshes that the machine allows, and it is not "
                f"proved that none exists:\n{reasons}"
            )
        raise InfeasibleError(
            f"none of the {len(self.tried)} meshes that the machine allows has a plan (proved for each):\n{reasons}"
        )

    def _fault(self) -> InputError:
        """The error that what was asked is at fault, and no mesh: nothing is proved of plans then."""
        first, *others = self.faulty.values()
        if all(str(other) == str(first) for other in others):
            return first
        told = [f"  {_text(self.tried[k].mesh)}: {str(e).splitlines()[0]}" for k, e in list(self.faulty.items())[:6]]
        return InputError("\n".join((f"what is asked for fits none of the {len(self.tried)} meshes:", *told)))

    def tighten(self, best: P) -> None:
        """Add points to the frontier: search the most promising meshes within less memory than the best plan takes."""
        solved = [t for t in self.tried.values() if t.objective_s is not None]
        order = sorted(solved, key=lambda t: (t.bound_s or 0.0, _key(t.mesh)))
        for part in TIGHTER:
            limit = int(best.memory.peak_bytes * part)
            for tried in order[:FRONTIER_MESHES]:
                self.ctrl_c.check()
                within = [p.objective_s for p in self.points if p.peak_bytes <= limit]
                if within and (tried.bound_s or 0.0) >= min(within) * 0.99:
                    continue
                if self.options.deadline.passed:
                    return
                self.options.say(f"mesh {_text(tried.mesh)} within {limit} bytes")
                try:
                    self._look(tried.mesh, self.ask(tried.mesh), limit, TIGHTER_SHARE)
                except AutoshardError:
                    continue


def _shape(machine: Machine) -> object:
    """A key for where axes lie: equal for meshes that differ in the names of their axes only.

    The order of axes counts: the later one is the minor one where both cut a dimension.
    """
    lying = zip(machine.axes, machine.layout, strict=True)
    return tuple((size, str(segments)) for (_, size), segments in lying if size > 1), machine.slice_shape
