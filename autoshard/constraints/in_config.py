"""How kinds of statements are written in a config: their keys, and the forms that their entries may have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from autoshard.errors import InputError


class Section(BaseModel):
    """Base of the mappings of a config: no unknown keys, no conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


@dataclass(frozen=True, eq=False)
class ConfigKey:
    """The key of a config under which statements of a kind stand, and the type of its value.

    holds: that type, for pydantic. default: the value where the key is missing. by: where a mapping may stand for the
    list, the field of an entry that is the key of the mapping; messages and plans then give the place of that key.
    """

    name: str
    holds: Any
    default: Any = field(default_factory=list)
    by: str = ""


SHORT_FORMS: dict[Callable[[Any], Any], tuple[dict[str, Any] | None, ...]] = {}
"""JSON Schemas of the short forms that functions of validators read; None for a single item of a list."""


def short_form(read: Callable[[Any], Any], *forms: dict[str, Any] | None) -> BeforeValidator:
    """A validator that reads a short form of a value."""
    SHORT_FORMS[read] = forms
    return BeforeValidator(read)


def _listed(entry: Any) -> Any:
    return [entry] if isinstance(entry, str) else entry


Axes = Annotated[list[str], short_form(_listed, {"type": "string"})]
"""One mesh axis or a list of them."""

Patterns = Annotated[list[str], short_form(_listed, {"type": "string"}), Field(min_length=1)]
"""One pattern or a list of them."""


def mapping_or(shorthand: str, what: str) -> BeforeValidator:
    """A validator that takes `{shorthand: x}` for a bare scalar x; `what` names the expected forms in messages."""

    def before(entry: Any) -> Any:
        if isinstance(entry, Mapping | BaseModel):
            return entry
        if entry is None or isinstance(entry, list):
            raise InputError(f"expected {what}, found {entry!r}")
        return {shorthand: entry}

    return short_form(before, {"type": ["string", "number"]})


def mapping_by(key: str, value: str) -> BeforeValidator:
    """A validator that takes ``{a: x, b: y}`` for the list ``[{key: a, value: x}, {key: b, value: y}]``."""

    def before(entries: Any) -> Any:
        return [{key: k, value: v} for k, v in entries.items()] if isinstance(entries, Mapping) else entries

    return short_form(before, {"type": "object"})


def one_or_list() -> BeforeValidator:
    """A validator that takes a single entry for a list with that entry."""
    return short_form(lambda given: given if isinstance(given, list) else [given], None)
