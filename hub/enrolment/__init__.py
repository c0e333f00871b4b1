"""How gateways become known to a hub, and what the hub knows of them."""
