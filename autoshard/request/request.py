"""Everything a caller asks for, as one value: made from keywords (`request_of`) or from a config (`config.asking`)."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from autoshard.costmodels import Machine
from autoshard.costs.exposure import OBJECTIVES, Objective
from autoshard.deadline import Deadline
from autoshard.errors import InputError
from autoshard.plan_record import ToldOptions
from autoshard.request.arguments import devices_given, limit_seconds, mesh_given
from autoshard.request.mesh_sizes import MeshSearch
from autoshard.search_options import RECORDED, Progress, SearchOptions
from autoshard.sharding.mesh import Mesh
from autoshard.units import as_given

if TYPE_CHECKING:
    from pathlib import Path

    from autoshard.costmodels import Profile
    from autoshard.frontends.jax.function import TracedFunction
    from autoshard.program.program import Program


AUTO = "auto"
Form = Literal["explicit", "constraints", "shardings", "auto", "all"]
LoopParts = int | Sequence[int] | str | None
"""In how many parts loops run; ``auto`` where that is to be found."""


class SearchWords(TypedDict, total=False):
    """Keywords of `autoshard.plan` about how to search; none changes what holds in the answer.

    effort: scales the work of the search, 1 by default; where a time limit is stated and no effort, a search within a
    memory limit goes on until the plan is proved or the time is up. seed: where it starts from. accepted_gap: where the
    search within a memory limit may end, in large programs.
    strategy: how to decide, by name (docs/strategies.md); by default ``staged`` where priorities are stated, otherwise
        ``joint``. Both start from the assignments of propagation and greedy.
    objective: what is minimised: ``serial``, seconds where nothing overlaps (the default), or ``overlap``, those for
        which a device waits or, where these are more, for which its busiest link works (docs/simulation.md).
    form: how XLA gets the plan: ``explicit`` (collectives written out, the default), ``constraints`` (a sharding
        constraint on every value), or ``auto``: in which of the two a simulated step is quicker (docs/simulation.md).
    sub_axes: how to split mesh axes, ``{"model": (8, 2)}``; ``{}`` for whole axes; by default chosen from the program.
    share_repeats: let repeated layers share their decisions. price_sharing: work out what that costs at most in large
        programs too. solver_memory: bytes of this process at which the search ends with the best plan so far.
    loop_parts: in how many parts loops run whose iterations do not wait for each other (docs/loops.md), or ``auto``.
    """

    effort: float
    seed: int
    accepted_gap: float
    strategy: str | None
    objective: Objective
    form: Form
    sub_axes: Mapping[str, Sequence[int]] | None
    share_repeats: bool
    price_sharing: bool
    solver_memory: int | None
    loop_parts: LoopParts


@dataclass(frozen=True, kw_only=True)
class Request:
    """A program, a mesh, a machine, what is stated, and how to search; the words are those of `autoshard.plan`.

    slow_axes: mesh axes between slices (None: those with ``link: dcn``). config: the config that it came from, if any,
    as it stands in plan.json. loop_parts: those that `traced` was traced with, or ``auto``. model_flop: useful FLOP of
    a call, for MFU. frontier: whether a search over meshes goes on to plans that take less memory. resized: makes the
    same request with a mesh of other sizes, where more than the mesh depends on the sizes. devices: those of a
    `jax.sharding.Mesh` that was given, in the order of their ids.
    """

    traced: TracedFunction | Program
    mesh: Mesh | Mapping[str, Any]
    hardware: str | Path | Profile | Machine
    statements: Any = ()
    memory_limit: float | str | Mapping[str, Any] | None = None
    carry: bool | str | Mapping[str, str] | None = None
    in_code: str | None = None
    loop_parts: LoopParts = None
    priorities: Sequence[Any] = ()
    roles: Mapping[str, Any] | None = None
    slow_axes: Collection[str] | None = None
    baselines: Sequence[Any] = ()
    strategy: str | None = None
    objective: Objective = "serial"
    form: Form = "explicit"
    sub_axes: Mapping[str, Sequence[int]] | None = None
    share_repeats: bool = True
    price_sharing: bool = False
    solver_memory: int | None = None
    options: SearchOptions = field(default_factory=SearchOptions)
    config: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    model_flop: float | None = None
    frontier: bool = True
    resized: Callable[[Mapping[str, int]], Request] | None = field(default=None, repr=False)
    devices: tuple[Any, ...] | None = field(default=None, repr=False)

    @property
    def mesh_search(self) -> MeshSearch | None:
        """The search over the sizes of the mesh; None where the sizes are given."""
        if isinstance(self.mesh, Mesh) or not MeshSearch.is_one(self.mesh):
            return None
        return MeshSearch.read(self.mesh)

    @property
    def between_slices(self) -> Collection[str]:
        """Mesh axes that lie between slices."""
        if self.slow_axes is not None:
            return self.slow_axes
        if isinstance(self.mesh, Mesh):
            return frozenset()
        links = {name: axis.get("link") for name, axis in self.mesh.items() if isinstance(axis, Mapping)}
        return frozenset(name for name, link in links.items() if link and str(link).split("=")[0].strip() == "dcn")

    def on(self, sizes: Mapping[str, int], reads: Callable[[Any, Mesh], bool]) -> Request:
        """The request on a mesh of these sizes. reads: whether a baseline finds the axes it needs on a mesh."""
        if self.resized is not None:
            return self.resized(sizes)
        mesh = Mesh.from_dict(dict(sizes))
        return replace(
            self, mesh=dict(sizes), baselines=[baseline for baseline in self.baselines if reads(baseline, mesh)]
        )

    def told_options(self) -> ToldOptions:
        """The options of the search, as the plan's record has them."""
        cut = None if self.sub_axes is None else {axis: tuple(parts) for axis, parts in self.sub_axes.items()}
        return ToldOptions(
            **self.options.recorded(), share_repeats=self.share_repeats, sub_axes=cut, strategy=self.strategy,
            objective=self.objective,
        )  # fmt: skip


def request_of(
    traced: TracedFunction | Program,
    *,
    mesh: Any,
    hardware: str | Path | Profile | Machine,
    constraints: Any = (),
    memory_limit: float | str | Mapping[str, Any] | None = None,
    carry: bool | str | Mapping[str, str] | None = None,
    in_code: str | None = None,
    time_limit: float | str | None = None,
    baselines: Sequence[Any] = (),
    roles: Mapping[str, Any] | None = None,
    priorities: Sequence[Any] = (),
    progress: Progress | None = None,
    **search: Any,
) -> Request:
    """The request that the keywords of `autoshard.plan` make; `search` are `SearchWords`.

    The time limit begins here. Raises `InputError` where the mesh has open sizes but the machine is placed already.
    """
    words = _known(search)
    _checked({**words, "progress": progress})
    words["seed"] = int(words.get("seed", 0))  # numpy's numbers too
    how = {name: words.pop(name) for name in RECORDED if name in words}
    endless = time_limit is not None and "effort" not in how
    options = SearchOptions(
        **how, deadline=Deadline.after(limit_seconds(time_limit)), progress=progress, endless=endless
    )
    request = Request(
        traced=traced, mesh=mesh_given(mesh), devices=devices_given(mesh), hardware=hardware, statements=constraints,
        memory_limit=memory_limit, carry=carry, in_code=in_code,
        priorities=priorities, roles=roles, baselines=baselines, options=options, **words,
    )  # fmt: skip
    if request.mesh_search is not None and isinstance(hardware, Machine):
        raise InputError("a machine is placed for one mesh; give a profile to search the sizes of the mesh")
    return request


def _checked(options: Mapping[str, Any]) -> None:
    """`InputError` for search options of a wrong type or out of range."""
    wanted: dict[str, tuple[str, Callable[[Any], bool]]] = {
        "effort": ("a positive number", lambda x: _is_number(x) and 0 < x <= sys.float_info.max),
        "seed": (
            "a whole number from 0",
            lambda x: isinstance(x, Integral) and not isinstance(x, bool) and int(x) >= 0,
        ),
        "accepted_gap": ("a number from 0 to 1", lambda x: _is_number(x) and 0 <= x <= 1),
        "objective": (" or ".join(map(repr, OBJECTIVES)), lambda x: x in OBJECTIVES),
        "form": (" or ".join(map(repr, get_args(Form))), lambda x: x in get_args(Form)),
        "strategy": ("a name (docs/strategies.md), or None", lambda x: x is None or isinstance(x, str)),
        "share_repeats": ("True or False", lambda x: isinstance(x, bool)),
        "price_sharing": ("True or False", lambda x: isinstance(x, bool)),
        "solver_memory": ("bytes, or None", lambda x: x is None or (_is_number(x) and x > 0)),
        "loop_parts": ("'auto', a number or a list", lambda x: x is None or isinstance(x, str | Integral | Sequence)),
        "sub_axes": ("the parts of axes, such as {'model': (2, 4)}, or None", lambda x: x is None or _are_parts(x)),
        "progress": ("a function of a text, or None", lambda x: x is None or callable(x)),
    }
    for name, (what, holds) in wanted.items():
        if name in options and not holds(options[name]):
            raise InputError(f"{name}: expected {what}, found {as_given(options[name])}")


def _are_parts(x: Any) -> bool:
    return isinstance(x, Mapping) and all(
        isinstance(axis, str) and isinstance(parts, list | tuple) and all(isinstance(n, Integral) for n in parts)
        for axis, parts in x.items()
    )


def _is_number(x: Any) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool)


def _known(search: Mapping[str, Any]) -> dict[str, Any]:
    names = list(SearchWords.__annotations__)
    for name in search:
        if name not in names:
            from autoshard.frontends.jax.keywords import meant_by

            near = difflib.get_close_matches(name, names, n=1)
            hint = meant_by(name) or (f"did you mean {near[0]!r}?" if near else "")
            raise TypeError(f"unknown keyword {name!r}" + (f"; {hint}" if hint else ""))
    return dict(search)
