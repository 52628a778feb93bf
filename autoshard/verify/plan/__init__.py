"""Is a plan right? Worked out again from plan.json alone."""
