"""Strategies: the placements that are still open for every op, and baselines by name."""
