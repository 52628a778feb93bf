"""A plan for other tools: Perfetto, Google's Model Explorer, and spreadsheets."""
