"""The Python API: `autoshard.plan`, plans and sessions; it composes the rooms."""
