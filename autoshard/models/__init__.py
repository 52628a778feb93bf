"""Small model library: plain JAX + optax train steps, with the dimensions of well-known models by name.

>>> from autoshard.models import build
>>> program = build("transformer", dims="llama3_8b", batch=64, layers=4)
>>> state, batch = program.specs
>>> batch["tokens"].shape, state["params"]["layers"]["wq"].shape
((64, 8192), (4, 4096, 32, 128))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autoshard.models.cards import card, card_names, card_options
from autoshard.models.options import OPTIONS, listing, make_options

if TYPE_CHECKING:
    from autoshard.models.model import ModelProgram

__all__ = ["build", "card", "card_names", "model_names"]


def model_names() -> tuple[str, ...]:
    """Models that `build` knows."""
    return tuple(OPTIONS)


def build(name: str, *, dims: str | None = None, **options: Any) -> ModelProgram:
    """The train step of a model, with its abstract arguments. Nothing is allocated.

    `dims` names a card of `cards.yaml`; options given here win over the card's. Raises `InputError` for an
    unknown model, card or option (listing the choices) and for impossible values, `UnsupportedError` for a
    card that this library cannot express. JAX is imported on the first call.
    """
    if name not in OPTIONS:
        from autoshard.errors import InputError

        raise InputError(f"no model {name!r}; {listing(str(name), OPTIONS)}")
    chosen = card_options(name, dims) if dims is not None else {}
    resolved = make_options(name, {**chosen, **options})
    return import_module(f"autoshard.models.{name}").program(resolved)
