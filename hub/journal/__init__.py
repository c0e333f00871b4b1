"""What the groups of a node keep on disk: one log for all, hard state in two copies, snapshots."""
