"""`headwater keys`: operators, accounts, users and gateways as keys and signed tokens."""
