"""Brings many gateways at once, over SSH, to what an inventory says."""
