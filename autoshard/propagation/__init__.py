"""Propagation: from some shardings that the user gave to one for every value, as Shardy does it."""

from autoshard.propagation.propagate import Propagated, Provenance, propagate

__all__ = ["Propagated", "Provenance", "propagate"]
