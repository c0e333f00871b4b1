"""Listening sockets, their TLS and the PROXY protocol. Doors: `listener.py`, `tls_filter.py`."""
