"""Exact engines: CP-SAT and toulbar2, each in one file, and what is searched with them piece by piece."""
