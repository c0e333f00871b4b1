"""Mirrors and sources: following one origin each. Door: `origin_driver.py`."""
