"""Local search: better assignments around one that is there."""
