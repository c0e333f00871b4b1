"""All that a node stores, and the work on a stopped store: verify, repair, rebuild."""
