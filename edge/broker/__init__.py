"""Connections, accounts, routing and backpressure."""
