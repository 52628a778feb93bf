"""Plans kept on disk, by all that they follow from, so that the next process does not search again."""

from __future__ import annotations

import hashlib
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard import __version__
from autoshard.api.plans import Plan
from autoshard.errors import AutoshardError
from autoshard.planning import STOPPED_BY_USER
from autoshard.program.as_json import mesh_to_json, plain, program_to_json, without_places
from autoshard.request.asking import Asked, asked

if TYPE_CHECKING:
    from autoshard.frontends.jax.function import TracedFunction
    from autoshard.request.request import Request

FOLDER = "AUTOSHARD_PLANS"
"""The environment variable that names another folder for kept plans; empty keeps none."""
MOST_KEPT = 200
"""Plans that a folder may hold; those that were not used for longest go first."""
_UNFINISHED = (STOPPED_BY_USER, "the run was stopped by the time limit")
"""Notes of plans that another run could better: they are not kept."""


def folder() -> Path | None:
    """Where plans are kept: ``~/.cache/autoshard/plans`` unless the environment says otherwise; None for nowhere."""
    named = os.environ.get(FOLDER)
    if named is not None:
        return Path(named) if named else None
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".cache") / "autoshard" / "plans"
    except RuntimeError:  # no home
        return None


def key_of(request: Request) -> str | None:
    """A name for everything that a request's plan follows from; None where its sizes of the mesh are open, or where
    something in it has no text of its own."""
    if request.mesh_search is not None:
        return None
    question = asked(request)
    text = json.dumps(_parts(request, question), sort_keys=True, default=repr)
    if " at 0x" in text:  # of an object that says no more of itself than where it lies
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _parts(request: Request, question: Asked) -> dict[str, Any]:
    problem = question.problem
    return {
        "versions": [__version__, version("jax"), _source()],
        "program": without_places(plain(program_to_json(problem.program))),
        "mesh": mesh_to_json(problem.mesh),
        "machine": plain(problem.machine.to_dict()),
        "statements": [{k: v for k, v in plain(s).items() if k != "source"} for s in question.statements],
        "limits": [problem.memory_limit, problem.host_limit, problem.device_limit, problem.trips],
        "options": request.told_options().to_dict(),
        "asked": [
            request.priorities, request.roles, sorted(request.between_slices), request.baselines,
            request.price_sharing, request.solver_memory, request.in_code,
        ],
    }  # fmt: skip


def _source() -> str:
    """Changes with every file of autoshard, as versions in the making have one number."""
    top = Path(__file__).resolve().parent.parent
    files = sorted((str(path.relative_to(top)), path.stat()) for path in top.rglob("*.py"))
    told = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def kept_plan(key: str, traced: TracedFunction) -> Plan | None:
    """The plan that is kept under a key, with the function; None where there is none that can be read and fits."""
    place = folder()
    file = None if place is None else place / f"{key}.json"
    if file is None or not file.is_file():
        return None
    try:
        plan = Plan.load(file).holding(traced)
        os.utime(file)
    except (AutoshardError, OSError):
        return None
    return plan


def keep(key: str, plan: Plan) -> None:
    """Keep a plan, where there is a folder that can be written; not one that more time could better."""
    place = folder()
    if place is None or any(note in _UNFINISHED for note in plan.notes):
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        plan.save(place / f"{key}.json")
        files = sorted(place.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for old in files[:-MOST_KEPT]:
            old.unlink(missing_ok=True)
    except (AutoshardError, OSError):  # a cache that cannot be written is no reason to fail
        return
