"""Overwriting erased messages wherever the store has them."""
