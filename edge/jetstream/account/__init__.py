"""JetStream of one account: its streams, their lives, and its limits."""
