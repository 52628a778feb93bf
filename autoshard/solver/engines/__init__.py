"""Exact engines: CP-SAT and toulbar2, each in a file of its own, and searches that use them piece by piece."""
