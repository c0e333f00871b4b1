"""Turns on one event loop: tasks, endpoints that send, sinks that receive, and their order."""
