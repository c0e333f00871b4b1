"""Leaf links, JetStream domains, mirrors and sources. Door: `service.py`."""
