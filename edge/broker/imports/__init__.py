"""Imports and exports between accounts: streams, services, and what crosses."""
