"""Strategies: named parallelism, as people write it."""
