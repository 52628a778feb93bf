"""Shardings that somebody wrote down, to be priced like a named strategy."""

from dataclasses import dataclass

from autoshard.constraints.pin import MatchedPin


@dataclass(frozen=True)
class StatedShardings:
    """Values and outputs in shardings of one's own; the rest follows from them by propagation.

    name: how reports call it.
    """

    name: str
    pins: tuple[MatchedPin, ...]
