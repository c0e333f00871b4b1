"""Monitoring endpoints: /varz and its family, health and metrics."""
