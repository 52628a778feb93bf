"""Plans kept on disk, under a key of everything that they depend on, so that the next process does not search again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard import __version__
from autoshard.api.plans import Plan
from autoshard.constraints import Kernel
from autoshard.constraints.kernels_of import match_kernels
from autoshard.errors import AutoshardError
from autoshard.files import read_json, write_json
from autoshard.program.as_json import guarded, mesh_to_json, plain, program_to_json, without_places
from autoshard.program.program import Program
from autoshard.request.asking import Asked, asked
from autoshard.solver.solution import Stopped

if TYPE_CHECKING:
    from autoshard.request.request import Request

FOLDER = "AUTOSHARD_PLANS"
"""The environment variable that names another folder for kept plans; empty keeps none."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
MOST_KEPT = 200
"""Most plans in the folder; the plans that were not used for the longest time are deleted first."""
_KEY_DIGITS = 32
_OURS = re.compile(rf"[0-9a-f]{{{_KEY_DIGITS}}}\.json")
"""Names of kept plans: other files in the folder are somebody's."""
_LEFT = re.compile(rf"\.[0-9a-f]{{{_KEY_DIGITS}}}\.json\..*\.part")
"""Names of plans that were being written, left where a process was killed meanwhile."""
_WRITTEN_WITHIN_S = 3600.0
_TOP = Path(__file__).resolve().parent.parent
_DIGEST = "kept"
"""The field of a kept plan that holds a digest of all others: what was changed since may still read as a plan."""


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
    """A key of everything that a request's plan depends on.

    None where the sizes of the mesh are open, or where an object in the request has no text of its own.
    """
    if request.mesh_search is not None:
        return None
    question = asked(request)
    # a search that would go on to its time limit is not answered by one that ended with its effort
    parts = {**_parts(request, question), "endless": request.options.endless}
    text = json.dumps(parts, sort_keys=True, default=repr)
    if " at 0x" in text:  # the repr of an object without text of its own
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def question_key(request: Request) -> str:
    """A key of the question alone, whichever version of autoshard answers it."""
    if request.mesh_search is None:
        told = {name: part for name, part in _parts(request, asked(request)).items() if name != "versions"}
    else:
        traced = request.traced
        program = traced if isinstance(traced, Program) else traced.program
        told = {"program": without_places(plain(program_to_json(program))), "machine": request.hardware}
    text = _ADDRESS.sub("", json.dumps(told, sort_keys=True, default=repr))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _parts(request: Request, question: Asked) -> dict[str, Any]:
    problem = question.problem
    return {
        "versions": [__version__, version("jax"), source_key(_TOP)],
        "program": without_places(plain(program_to_json(problem.program))),
        "mesh": mesh_to_json(problem.mesh),
        "machine": plain(problem.machine.to_dict()),
        "statements": [{k: v for k, v in plain(s).items() if k != "source"} for s in question.statements],
        "limits": [problem.memory_limit, problem.host_limit, problem.device_limit, problem.trips],
        "options": request.told_options().to_dict(),
        "asked": [
            request.priorities, request.roles, sorted(request.between_slices), request.baselines,
            request.price_sharing, request.solver_memory, request.in_code,
            request.loop_parts, request.form,
        ],
    }  # fmt: skip


def source_key(top: Path) -> str:
    """A key of the Python files of a folder; versions of autoshard in development have the same number."""
    folders = os.walk(top, followlinks=True)  # in a checkout the cost models are a link
    paths = (Path(folder, name) for folder, _, names in folders for name in names if name.endswith(".py"))
    files = sorted((str(path.relative_to(top)), path.stat()) for path in paths)
    told = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def kept_plan(key: str, request: Request) -> Plan | None:
    """The plan that is kept under a key, with the function of the request; None where there is none that can be read
    and fits.
    """
    traced = request.traced
    place = folder()
    file = None if place is None else place / f"{key}.json"
    if file is None or not file.is_file() or isinstance(traced, Program):
        return None

    def read() -> Plan | None:
        data = read_json(file, what="plan")
        if data.pop(_DIGEST, None) != _digest(data):
            return None
        plan, own = Plan.of_file(file, data), traced
        parts = plan.program.loop_parts
        if parts != own.program.loop_parts and own.in_parts is not None:
            own = own.in_parts(parts)
        return plan.holding(replace(own, devices=asked(request).devices))

    try:
        plan = guarded(read, str(file))
        os.utime(file)
    except (AutoshardError, OSError):
        return None
    return plan


def with_stated_locals(plan: Plan, stated: Any) -> Plan:
    """The plan with the functions that statements about kernels hold; a plan that was kept has only their names."""
    from autoshard.config.problem import imported_locals
    from autoshard.frontends.jax.function import with_locals

    kernels = [s for s in (stated if isinstance(stated, list | tuple) else (stated,)) if isinstance(s, Kernel)]
    if plan.traced is None or not kernels:
        return plan
    functions = imported_locals(match_kernels(kernels, plan.program).locals, Path())
    return replace(plan, traced=with_locals(plan.traced, functions))


def keep(key: str, plan: Plan) -> None:
    """Keep a plan, where the folder can be written; plans that more time may improve are not kept."""
    place = folder()
    if place is None or _cut_short(plan):
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        data = plain(plan.to_dict())
        write_json(place / f"{key}.json", {**data, _DIGEST: _digest(data)})
        _tidy(place)
    except (AutoshardError, OSError):  # a folder that cannot be written is no reason to fail
        return


def _digest(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _tidy(place: Path) -> None:
    """Delete the plans beyond `MOST_KEPT`, and what killed processes left; no file of another name."""
    names = [path for path in place.iterdir() if _OURS.fullmatch(path.name)]
    files = sorted(names, key=lambda path: path.stat().st_mtime_ns)
    left = [path for path in place.iterdir() if _LEFT.fullmatch(path.name)]
    long_ago = time.time() - _WRITTEN_WITHIN_S
    for old in (*files[:-MOST_KEPT], *(path for path in left if path.stat().st_mtime < long_ago)):
        old.unlink(missing_ok=True)


def _cut_short(plan: Plan) -> bool:
    """Whether the user or the clock ended one of the plan's searches: another run may give a better plan."""
    ends = {round_.get("stopped") for round_ in plan.run.get("rounds", ())}
    return bool(plan.run.get("interrupted")) or not ends.isdisjoint({Stopped.TIME, Stopped.INTERRUPT})
