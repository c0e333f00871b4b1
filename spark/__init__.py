"""Spark at the hub: a Python data source over the wire, and fleet analytics jobs."""
