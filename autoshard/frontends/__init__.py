"""What reads the outside: JAX functions (and other forms of programs) become a `Program`."""
