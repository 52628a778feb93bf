"""Manual computations: the region that is local over mesh axes, its borders, and a check that it can be local."""
