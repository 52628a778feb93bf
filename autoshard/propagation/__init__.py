"""Propagation: shardings of some values become a sharding of every value, by the rules of Shardy."""

from autoshard.propagation.program.propagate import Propagated, propagate
from autoshard.propagation.program.provenance import Hop, Provenance

__all__ = ["Hop", "Propagated", "Provenance", "propagate"]
