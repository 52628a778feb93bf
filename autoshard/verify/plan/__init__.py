"""Is a plan right? Everything that follows from its layouts is worked out again from plan.json alone."""
