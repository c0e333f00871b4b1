"""The JetStream API of a cluster: who answers a request, and what leaders do about it."""
