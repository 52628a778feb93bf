"""Shardings of arguments and results that the user wrote, to be priced like a named strategy."""

from dataclasses import dataclass

from autoshard.constraints.pin import MatchedPin


@dataclass(frozen=True)
class StatedShardings:
    """Values and outputs with shardings of the user; those of all other values follow by propagation.

    name: of the baseline in reports.
    """

    name: str
    pins: tuple[MatchedPin, ...]
