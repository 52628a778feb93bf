"""MLIR modules: parsed, checked, and read as programs."""
