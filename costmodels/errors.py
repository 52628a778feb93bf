"""Errors of the cost models: a profile, a placement or a question that makes no sense."""


class ProfileError(ValueError):
    """A hardware profile, the placing of a mesh on it, or a question about it is malformed or impossible."""
