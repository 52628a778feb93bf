"""Sharding representation: meshes, (sub-)axes, layouts, and the steps between layouts."""
