"""autoshard: decide how every tensor is split over a mesh of accelerators, with a proven gap."""

__version__ = "0.1.0"
