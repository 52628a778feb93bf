"""Placements: what a single op may do, and over which mesh axes."""
