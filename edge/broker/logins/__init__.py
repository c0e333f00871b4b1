"""Logins and sessions of clients and links. Doors: `sessions.py` for clients, `registry.py`."""
