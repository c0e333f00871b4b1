"""The node itself: wire protocol, broker, storage, JetStream, configuration, monitoring."""
