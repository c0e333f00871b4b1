"""Leaf links, whichever side opened them. Door: `leaf_links.py`."""
