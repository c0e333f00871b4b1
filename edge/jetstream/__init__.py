"""Streams, consumers and the JetStream API."""
