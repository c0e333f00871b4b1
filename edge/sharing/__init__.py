"""Imports and exports between the accounts of a node: set up, changed live, and shown."""
