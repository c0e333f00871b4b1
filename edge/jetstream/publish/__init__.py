"""From a routed message to a stored one: ingest, batches, counters."""
