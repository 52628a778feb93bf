"""JAX functions as programs, and back again op by op."""
