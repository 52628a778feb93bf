"""What is wrong with a profile's data, in words for a user: pydantic's faults, and which keys there are."""

from collections.abc import Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel


def said(fault: Any, model: type[BaseModel]) -> str:
    """A fault that pydantic found in data for `model`, with its place."""
    where = ".".join(str(part) for part in fault["loc"]) or "profile"
    kind, found = fault["type"], fault["input"]
    if kind == "extra_forbidden":
        return f"{where}: unknown key{_choices(model, fault['loc'])}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        message = "must be a mapping of keys and values"
    elif kind in ("list_type", "tuple_type"):
        message = "must be a list"
    else:
        message = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
    shown = f" (found {str(found)[:60]!r})" if isinstance(found, str) else f" (found {found!r})"
    return f"{where}: {message}{shown if isinstance(found, (str, int, float)) else ''}"


def _choices(model: type[BaseModel], place: Sequence[Any]) -> str:
    """The keys that are possible at a place, and the nearest one; empty where no model says them."""
    at: Any = model
    for part in place[:-1]:
        at = _inside(at, part)
    if get_origin(at) in (Union, UnionType):  # where it may be left out
        at = next((member for member in get_args(at) if isinstance(member, type)), None)
    if not (isinstance(at, type) and issubclass(at, BaseModel)):
        return ""
    known = list(at.model_fields)
    near = get_close_matches(str(place[-1]), known, n=1)
    guess = f"; did you mean {near[0]}?" if near else ";"
    return f"{guess} possible are {', '.join(known)}"


def _inside(annotation: Any, part: Any) -> Any:
    """The type of what lies under a key, an index, or the tag of a union, in data of a type."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _inside(inner[0], part)
    if origin in (Union, UnionType):
        named = (m for m in inner if isinstance(m, type) and issubclass(m, BaseModel))
        several = [m for m in named if part in _tags(m)]
        return several[0] if several else next((t for m in inner if (t := _inside(m, part)) is not None), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        return None if field is None else field.annotation
    if origin is dict:
        return inner[1]
    if origin is tuple and isinstance(part, int):
        return inner[0]
    return None


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    """The values of ``kind`` by which a union tells a model."""
    kind = model.model_fields.get("kind")
    return get_args(kind.annotation) if kind is not None and get_origin(kind.annotation) is Literal else ()
