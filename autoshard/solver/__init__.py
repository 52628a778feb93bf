"""The solver: numbers in, numbers out; no tensors, no JAX."""
