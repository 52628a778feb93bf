"""Manual computations: the region that is local over mesh axes, its borders, and what cannot be local."""
