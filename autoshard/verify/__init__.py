"""Verification: is a plan right? Shares no code with the rooms that made it."""
