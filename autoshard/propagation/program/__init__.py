"""Propagation over programs."""
