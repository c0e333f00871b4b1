"""A consumer while it runs: demand, delivery, acks, and its life from creation to recovery."""
