"""Questions to a plan that exists: why, what else, what if, and what is different."""
