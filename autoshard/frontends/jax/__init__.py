"""JAX functions as programs, and running these programs op by op."""
