"""One config solved many times: over meshes, machines, models, limits; a row each, written as soon as it is known.

A sweep that was stopped goes on where it stopped: rows that its file has are not solved again. The point that Ctrl-C
cuts short has no row, whatever its search had by then.
"""

import csv
import hashlib
import io
import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoshard import __version__, interrupts
from autoshard.config.changes import with_changes
from autoshard.config.load import MAX_BYTES, config_from_document
from autoshard.config.schema_faults import check_key
from autoshard.config.yaml_text import Document, load_yaml
from autoshard.errors import AutoshardError, InfeasibleError, InputError, NotFoundError, OutOfTimeError
from autoshard.files import read_text, write_text

if TYPE_CHECKING:
    import pandas as pd

    from autoshard.api.session import TracedProblem

MOST_POINTS = 10_000
"""More points than this are refused: somebody meant fewer."""
FIGURES = (
    "status", "step_s", "mfu", "objective_s", "bound_s", "gap", "compute_s", "communication_s", "peak_bytes", "seconds",
    "reason",
)  # fmt: skip
"""Columns behind those of the keys. step_s: the estimate; seconds: wall clock of the search."""
CONFIG = "config"
"""The last column: digests of the config and of the problem that it states, by which rows of others are recognised."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """The rows of a sweep, in the order of its points.

    keys: what differs between points. Each row has their values as text (YAML), then `FIGURES` (None where there is no
    plan; `reason` says why) and the digest of the config.
    """

    keys: tuple[str, ...]
    rows: tuple[Row, ...]

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a table."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=[*self.keys, *FIGURES, CONFIG])

    def csv(self) -> str:
        """The rows as comma-separated values, with a header; numbers with all digits."""
        out = io.StringIO()
        writer = csv.DictWriter(out, [*self.keys, *FIGURES, CONFIG], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue()


@interrupts.heeded()
def sweep(
    config: str | Path,
    over: Mapping[str, Sequence[Any]],
    *,
    changes: Sequence[str] = (),
    results: str | Path | None = None,
    time_limit_s: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Sweep:
    """Solve a config with every combination of the values `over` its keys.

    over: key (dots lead into mappings: ``model.layers``) -> values, as in the config. changes: ``KEY=VALUE`` for all
    points. results: a CSV file that is written after every point; rows in it are not solved again. time_limit_s: of one
    point; by default the config's. Points that cannot be are rows with a reason. Nothing is verified or run. The config
    is read once, at the start.
    Raises `InputError` for a config that cannot be read at all, for a key that no config has or that replaces what
    another one put in, for a value that occurs twice, and for a file with rows of another sweep, or of what the config
    named before (its function, model file or machine were changed since).
    """
    if not over or not all(_is_list(values) and len(values) for values in over.values()):
        raise InputError("a sweep needs keys with values, such as {'mesh': [{'data': 8}, {'data': 4, 'model': 2}]}")
    count = math.prod(map(len, over.values()))
    if count > MOST_POINTS:
        raise InputError(f"the sweep has {count} points; at most {MOST_POINTS} are solved")
    keys = tuple(over)
    if taken := [key for key in keys if key in (*FIGURES, CONFIG)]:
        raise InputError(f"{taken[0]!r} is no key of a config")
    for key in (*(change.partition("=")[0].strip() for change in changes), *keys):
        check_key(key)
    _check_replaced(changes, keys)
    if time_limit_s is not None and "time_limit" in keys:
        raise InputError("the time limit of all points replaces 'time_limit' at every point; give one of the two")
    texts = [_texts(key, values) for key, values in over.items()]
    text = read_text(config, what="config", max_bytes=MAX_BYTES)
    # once: the file may be changed while points are solved
    document = with_changes(load_yaml(text, str(config)), changes)
    digest = _digest(__version__, text, *changes, *([] if time_limit_s is None else [repr(time_limit_s)]))
    known = _known(results, keys, digest)
    rows: list[Row] = []
    for number, values in enumerate(itertools.product(*texts)):
        point = dict(zip(keys, values, strict=True))
        row = known.get(values)
        if row is None and progress is not None:
            told = ", ".join(f"{key}={value}" for key, value in point.items())
            progress(f"point {number + 1} of {count}: {told}")
        read = _read_point(document, _as_changes(point), time_limit_s)
        asked = f"{digest}-{_problem_key(read, document, _as_changes(point))}" if results is not None else digest
        if row is not None and row[CONFIG] != asked:
            raise InputError(
                f"{results}: the row of {', '.join(f'{k}={v}' for k, v in point.items())} is of another problem: what "
                "the config names (its function, model file or machine) was changed since; name another file, or "
                "delete this one"
            )
        if row is None:
            with interrupts.noticed() as ctrl_c:
                figures = _solved(read)
            ctrl_c.check()
            row = {**point, **figures, CONFIG: asked}
        rows.append(row)
        known.pop(values, None)
        if results is not None:  # rows that are not reached yet, or not asked for now, are kept
            write_text(results, Sweep(keys, (*rows, *known.values())).csv())
    return Sweep(keys, tuple(rows))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str | bytes)


def _check_replaced(changes: Sequence[str], keys: Sequence[str]) -> None:
    """Raise `InputError` where a key replaces what was put in before: rows would name what they are not of."""
    changed = [change.partition("=")[0].strip() for change in changes]
    for number, key in enumerate(keys):
        for other in (*changed, *keys[:number]):
            if f"{other}.".startswith(f"{key}."):
                raise InputError(
                    f"{key!r} replaces {other!r} at every point; "
                    + (f"leave {other!r} out" if other in changed else f"name {key!r} first, then {other!r} is put in")
                )


def _texts(key: str, values: Sequence[Any]) -> list[str]:
    """The values of a key as text; `InputError` for what no config holds, and for a value that occurs twice."""
    texts: list[str] = []
    for value in values:
        try:
            text = _text(value)
        except (TypeError, ValueError):
            raise InputError(
                f"{key}: expected values as in a config (text, numbers, lists, mappings), found {value!r}"
            ) from None
        if text in texts:
            raise InputError(f"{key}: the value {text} occurs twice")
        texts.append(text)
    return texts


@dataclass(frozen=True)
class _Point:
    """What the config states at one point, traced once for its key and its plan; or why that cannot be.

    seconds: wall clock that reading and tracing took.
    """

    stated: "TracedProblem | AutoshardError"
    seconds: float


def _read_point(document: Document, changes: Sequence[str], time_limit_s: float | None) -> _Point:
    from autoshard.api.session import traced_problem
    from autoshard.config.problem import build_problem

    began = time.monotonic()
    stated: TracedProblem | AutoshardError
    try:
        settings = config_from_document(with_changes(document, changes))
        stated = traced_problem(settings, build_problem(settings), time_limit_s=time_limit_s)
    except AutoshardError as error:
        stated = error
    return _Point(stated, time.monotonic() - began)


def _problem_key(point: _Point, document: Document, changes: Sequence[str]) -> str:
    """A key of the problem of one point, as code and files state it now; of why there is none, where there is none."""
    from autoshard.api.kept import question_key
    from autoshard.search_options import SearchOptions

    stated = point.stated
    if isinstance(stated, OutOfTimeError):  # which it may not be the next time
        stated = _read_point(document, changes, math.inf).stated
    try:
        if isinstance(stated, AutoshardError):
            raise stated
        return question_key(stated.request(SearchOptions()))
    except AutoshardError as error:
        return _digest(str(error))


def _text(value: Any) -> str:
    """A value as YAML on one line: text as it is, where it reads as text."""
    if isinstance(value, str) and value.strip() == value and "\n" not in value:
        try:
            if value and load_yaml(value, "a value").data == value:
                return value
        except InputError:
            pass
    return json.dumps(value)


def _as_changes(point: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in point.items()]


def _solved(point: _Point) -> Row:
    """The figures of one point; where it has no plan, its status and why."""
    began = time.monotonic()
    figures: Row = dict.fromkeys(FIGURES)
    try:
        figures |= _figures(point)
    except InfeasibleError as error:
        figures |= {"status": "infeasible", "reason": str(error)}
    except NotFoundError as error:
        figures |= {"status": "none found", "reason": str(error)}
    except OutOfTimeError as error:
        figures |= {"status": "out of time", "reason": str(error)}
    except AutoshardError as error:
        figures |= {"status": "refused", "reason": str(error)}
    return {**figures, "seconds": round(point.seconds + time.monotonic() - began, 3)}


def _figures(point: _Point) -> Row:
    if isinstance(point.stated, AutoshardError):
        raise point.stated
    plan = point.stated.plan()
    step = plan.step_time.to_dict()
    return {
        "status": plan.status,
        "step_s": step["estimate_s"],
        "mfu": step["mfu"].get("estimate"),
        "objective_s": float(plan.objective_s),
        "bound_s": float(plan.bound_s),
        "gap": float(plan.gap),
        "compute_s": float(plan.cost.compute_s),
        "communication_s": float(plan.cost.communication_s),
        "peak_bytes": plan.memory.peak_bytes,
    }


def _known(results: str | Path | None, keys: Sequence[str], digest: str) -> dict[tuple[str, ...], Row]:
    """Rows of a results file by the values of their keys."""
    if results is None or not Path(results).exists():
        return {}
    reader = csv.DictReader(io.StringIO(read_text(results, what="table")))
    if reader.fieldnames != [*keys, *FIGURES, CONFIG]:
        raise InputError(f"{results} is no table of this sweep, whose columns are {', '.join(keys)}, ...; name another")
    known: dict[tuple[str, ...], Row] = {}
    for row in reader:
        place = f"{results}:{reader.line_num}"
        if (row[CONFIG] or "").partition("-")[0] != digest:
            raise InputError(
                f"{place}: this row is of another config or version, or the config was changed since; name another "
                "file, or delete this one"
            )
        figures = {name: _read(row[name] or "", name, place) for name in FIGURES}
        known[tuple(row[key] for key in keys)] = {**{key: row[key] for key in keys}, **figures, CONFIG: row[CONFIG]}
    return known


def _read(text: str, name: str, place: str) -> Any:
    if not text and name not in ("status", "seconds"):
        return None
    if text and name in ("status", "reason"):
        return text
    try:
        return int(text) if name == "peak_bytes" else float(text)
    except ValueError:
        raise InputError(
            f"{place}: cannot read {name}, found {text!r}; delete the row to have it solved again"
        ) from None
