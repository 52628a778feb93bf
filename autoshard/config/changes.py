"""Changes to a config from the command line: ``memory_limit=12GiB``, ``model.layers=2``, and whole meshes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoshard.config.yaml_text import Document, KeyPath, Place, load_yaml
from autoshard.errors import InputError


def with_changes(document: Document, changes: Sequence[str]) -> Document:
    """A config's data with ``KEY=VALUE`` put in; dots lead into mappings, values are YAML.

    Messages about what was put in cite the change instead of a place in the file. `InputError` where one cannot be read
    or leads through something that is no mapping.
    """
    for change in changes:
        path, value = _read(change)
        place = Place(f"{change!r}", 0, 0)
        data = _put(document.data, path, value, change)
        keys = {at: where for at, where in document.keys.items() if at[: len(path)] != path}
        values = {at: where for at, where in document.values.items() if at[: len(path)] != path}
        document = replace(document, data=data, keys={**keys, path: place}, values={**values, path: place})
    return document


def mesh_change(sizes: Mapping[str, int]) -> str:
    """The change that ``--mesh`` stands for.

    >>> mesh_change({"data": 2, "model": 4})
    'mesh={data: 2, model: 4}'
    """
    return "mesh={" + ", ".join(f"{axis}: {size}" for axis, size in sizes.items()) + "}"


def _read(change: str) -> tuple[KeyPath, Any]:
    name, equals, text = change.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or not all(path):
        raise InputError(f"cannot read {change!r}; write KEY=VALUE, such as memory_limit=12GiB or mesh.data=4")
    return path, load_yaml(text if text.strip() else "''", f"{change!r}").data


def _put(data: Any, path: KeyPath, value: Any, change: str) -> Any:
    if not path:
        return value
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        raise InputError(f"{change!r}: {path[0]!r} is to be put into {data!r}, which is no mapping")
    return {**data, path[0]: _put(data.get(path[0]), path[1:], value, change)}
