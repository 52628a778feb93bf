"""What is asked for: arguments of callers, as the library wants them."""
