"""Clusters of three beside three nats-servers: their speed, and faults under load."""
