"""Local search: better assignments in the neighbourhood of a known one."""
