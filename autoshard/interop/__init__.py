"""Spellings of other systems: JAX objects here, so that no other room needs them."""
