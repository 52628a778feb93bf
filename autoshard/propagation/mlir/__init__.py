"""Propagation over MLIR modules."""
