"""In-memory twins of the ports, for tests and simulations: deterministic, and as bad as asked."""
