"""Propagation: from some shardings that the user gave to one for every value, as Shardy does it."""

from autoshard.propagation.program.propagate import Propagated, propagate
from autoshard.propagation.program.provenance import Hop, Provenance

__all__ = ["Hop", "Propagated", "Provenance", "propagate"]
