"""Faults of a config that its schema finds, in words and with their places in the file."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from autoshard.config.messages import fault_line, shown
from autoshard.config.other_words import meant_beside, meant_by
from autoshard.config.schema import schema
from autoshard.config.yaml_text import Document, KeyPath
from autoshard.errors import InputError, listing


def schema_faults(error: ValidationError, document: Document) -> Iterator[str]:
    """The faults that pydantic found, in words, each with its place in the file: one for a value of several forms."""
    forms = _forms_expected(error, document)
    for fault in error.errors():
        path, of_key, form = _without_choices(fault["loc"], document.data), False, (fault["loc"] or ("",))[-1]
        kind, context, value = fault["type"], fault.get("ctx", {}), fault["input"]
        if form == "str" and isinstance(value, Mapping):
            continue  # the fault of the value as a mapping is reported
        if _of_an_element(form, value):
            continue  # the fault of an element is reported
        expected = _expected(fault)
        if kind == "extra_forbidden":
            message = _unknown(path, value, _known_keys(path[:-1]))
            path, of_key = path, True
        elif kind == "missing":
            message = f"key {path[-1]!r} is missing"
            path = path[:-1]
        elif kind == "value_error":
            message = str(context.get("error", fault["msg"]))
            path = _option_path(path, message, document)
        elif expected is not None:
            *others, last = forms.pop(path, [""])
            if not last:
                continue  # told with another form of this value
            message = f"expected {' or '.join([', '.join(others), last] if others else [last])}, found {shown(value)}"
        else:
            message = f"{fault['msg'].removeprefix('Input ')}, found {shown(value)}"
        yield fault_line(document, path, message + meant_beside(path, value), of_key=of_key)


def _forms_expected(error: ValidationError, document: Document) -> dict[KeyPath, list[str]]:
    """What is expected at each path where a value has another form: several where it may have one of several."""
    found: dict[KeyPath, list[str]] = {}
    for fault in error.errors():
        expected = _expected(fault)
        if expected is not None and not _of_an_element((fault["loc"] or ("",))[-1], fault["input"]):
            found.setdefault(_without_choices(fault["loc"], document.data), []).append(expected)
    return found


def _expected(fault: Mapping[str, Any]) -> str | None:
    return fault["ctx"]["expected"] if fault["type"] == "literal_error" else _EXPECTED.get(fault["type"])


def _of_an_element(form: str | int, value: Any) -> bool:
    """Whether a list that is no whole number (or no word) may be at fault for what stands in it."""
    return isinstance(value, list) and (form == "constrained-int" or str(form).startswith("literal["))


def _unknown(path: KeyPath, value: Any, known: Collection[str]) -> str:
    """The fault of an unknown key: what is meant by a word of others, else the nearest key and the choices."""
    key = str(path[-1])
    return f"unknown key {key!r}; {meant_by(path, value, known) or listing(key, known)}"


def _without_choices(path: KeyPath, data: Any) -> KeyPath:
    """The path in the file. pydantic's path also names the form that it tried (``baselines[0].BaselineSection``)."""
    steps: list[str | int] = []
    for step in path:
        if isinstance(data, Mapping) and step in data:
            data = data[str(step)]
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        elif _is_form(step):
            continue
        steps.append(step)
    return tuple(steps)


def _is_form(step: str | int) -> bool:
    return isinstance(step, str) and (
        step.endswith("Section") or step in ("str", "bool") or step.startswith(("literal[", "constrained-", "list["))
    )


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _known_keys(section: KeyPath) -> list[str]:
    """The keys that a section of the file may have, as its schema says."""
    whole = schema()
    field = whole.model_fields.get(str(section[0])) if section else None
    model = whole if field is None else next(_models_in(field.annotation), whole)
    return list(model.model_fields)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The schemas of mappings that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _option_path(path: KeyPath, message: str, document: Document) -> KeyPath:
    """For faults of model options, whose message names the option: the path of that option."""
    if path != ("model",) or not isinstance(document.data["model"], Mapping):
        return path
    words = re.findall(r"\w+", message)
    if words[:2] == ["no", "model"]:
        return (*path, "name")
    return next(((*path, word) for word in words if word in document.data["model"]), path)


def check_key(key: str) -> None:
    """Raise `InputError` where no config has a key, whatever else it says; dots lead into mappings.

    >>> check_key("model.layers"), check_key("mesh.data")
    (None, None)
    >>> check_key("solver.efort")
    Traceback (most recent call last):
    autoshard.errors.InputError: solver.efort: unknown key 'efort'; did you mean 'effort'? Choices: effort, seed, ...
    """
    top, *rest = key.split(".")
    if not all(part.strip() for part in (top, *rest)):
        raise InputError(f"{key!r} is no key; write names with dots between them, such as model.layers")
    known = _known_keys(())
    if top in known:
        known = _options_within(top) if rest else [top]
        top = rest[0] if rest else top
    if known and top not in known:
        path = tuple(key.split("."))
        raise InputError(f"{key}: {_unknown(path[: path.index(top) + 1], None, known)}")


def _options_within(section: str) -> list[str]:
    """The keys of a section, those of all models for `model`; none where a user may choose them."""
    from autoshard.models.options import OPTIONS

    annotation = schema().model_fields[section].annotation
    forms = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    models = [model for form in forms for model in _models_in(form)]
    if not models or any(get_origin(form) in (dict, list) for form in forms):
        return []
    known = [name for model in models for name in model.model_fields]
    if section == "model":
        known += [field.name for options in OPTIONS.values() for field in fields(options)]
    return list(dict.fromkeys(known))
