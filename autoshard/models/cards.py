"""Dimensions of well-known models by name (`cards.yaml`), turned into options of this library's models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from autoshard.errors import InputError, UnsupportedError
from autoshard.models.options import listing


@cache
def _document() -> dict[str, Any]:
    return yaml.safe_load(files("autoshard.models").joinpath("cards.yaml").read_text(encoding="utf-8"))


def card_names(model: str | None = None) -> tuple[str, ...]:
    """Names for `dims`, of one model or of all, in the order of the file."""
    return tuple(name for name, card in _document()["cards"].items() if model in (None, card.get("model")))


def card(name: str) -> Mapping[str, Any]:
    """One card: `model`, `options`, published counts and `source`; or `unsupported`, a reason."""
    cards = _document()["cards"]
    if name not in cards:
        raise InputError(f"no dims {name!r}; {listing(str(name), cards)}")
    return cards[name]


def card_options(model: str, name: str) -> dict[str, Any]:
    """Options that a card sets for `model`; an error where the card belongs to another model, or to none.

    >>> card_options("transformer", "llama3_8b")["kv_heads"]
    8
    """
    dims_card = card(name)
    if "unsupported" in dims_card:
        raise UnsupportedError(
            f"dims {name!r} cannot be built: {dims_card['unsupported']}. "
            f"Try another of: {', '.join(card_names(model)) or ', '.join(card_names())}"
        )
    if dims_card["model"] != model:
        raise InputError(
            f"dims {name!r} belongs to model {dims_card['model']!r}, asked for model {model!r}; "
            + (f"dims of {model!r}: {', '.join(card_names(model))}" if card_names(model) else f"{model!r} has no dims")
        )
    return {**_document()["defaults"].get(model, {}), **dims_card["options"]}
