"""Twins of the ports that live in memory and can fail: for simulations."""
