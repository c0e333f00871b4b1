"""Leaf connections, JetStream domains, mirrors and sources."""
