"""Simulation: a plan's program on a clock, as the machine's own compiler schedules it, or as our scheduler does."""
