"""What a plan's record says about its program, as plain data: work of ops, order of events, memory, outline."""
