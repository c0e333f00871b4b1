"""The NATS client protocol as Spark tasks speak it."""
