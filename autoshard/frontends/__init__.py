"""Front ends: JAX functions and MLIR modules are read, and become a `Program`."""
