"""Side-by-side measurement of servers that speak the NATS protocol; not part of the wheel."""
