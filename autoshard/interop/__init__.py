"""Spellings of other systems: meshes and shardings of JAX, HLO and sdy, so that other rooms need not know them."""
