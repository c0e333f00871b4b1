"""How a node finds a hub and reaches it: discovery, proxies, TLS and credentials.

Doors: `discovery.py` for addresses, `credentials.py` and `client_tls.py` for one dial.
"""
