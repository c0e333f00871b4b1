"""JetStream of a node: opens storage, recovers, and gives accounts their API."""
