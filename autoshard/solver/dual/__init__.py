"""Lower bounds: message passing with prices on memory, and what a bound leaves."""
