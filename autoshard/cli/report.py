"""``autoshard report``: a page about plans, or their figures for other tools."""
