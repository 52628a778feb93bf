"""Every leaf of a plan.json, changed, left out, doubled or moved: one such change at a time."""

import copy
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]


def shape_of(path: Path) -> str:
    """Where in the file, numbers of entries and ids of the program as ``*``: entries alike have one shape."""
    return ".".join("*" if isinstance(p, int) or str(p).lstrip("-").isdigit() else str(p) for p in path)


def at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


def places(data: Any, path: Path = ()) -> Iterator[Path]:
    """All places, what holds others before what it holds."""
    if path:
        yield path
    if isinstance(data, dict):
        for key in data:
            yield from places(data[key], (*path, key))
    elif isinstance(data, list):
        for k in range(len(data)):
            yield from places(data[k], (*path, k))


def others(value: Any) -> list[Any]:
    """What a leaf may be changed to."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value + 3]
    if isinstance(value, float):
        return [1.001 * value + 1e-12, 0.5 * value]
    if isinstance(value, str):
        return [value + "x", ""]
    return [1, "x"] if value is None else [None]


def changes(data: Any, each: int = 2) -> Iterator[tuple[str, str, Any]]:
    """Shape, kind of the change, and a changed copy; of places of one shape the first and the last ones."""
    found: dict[str, list[Path]] = {}
    for path in places(data):
        found.setdefault(shape_of(path), []).append(path)
    for shape, paths in found.items():
        picked = paths if len(paths) <= each else [*paths[: each - 1], paths[-1]]
        for path in picked:
            yield from ((shape, kind, new) for kind, new in _at(data, path))


def _at(data: Any, path: Path) -> Iterator[tuple[str, Any]]:
    value = at(data, path)

    def copied() -> tuple[Any, Any]:
        whole = copy.deepcopy(data)
        return whole, at(whole, path[:-1])

    whole, parent = copied()
    del parent[path[-1]]
    yield "left out", whole
    if not isinstance(value, dict | list):
        for k, other in enumerate(others(value)):
            if type(other) is type(value) and other == value:
                continue
            whole, parent = copied()
            parent[path[-1]] = other
            yield f"changed {k}", whole
        return
    if value:
        whole, parent = copied()
        parent[path[-1]] = type(value)()
        yield "emptied", whole
    if isinstance(value, list) and value:
        whole, parent = copied()
        parent[path[-1]] = [*value, copy.deepcopy(value[-1])]
        yield "doubled", whole
    if isinstance(value, list) and value[::-1] != value:
        whole, parent = copied()
        parent[path[-1]] = value[::-1]
        yield "reversed", whole
