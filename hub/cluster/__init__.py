"""What nodes of a cluster say to each other: frames, the driver of Raft, who is alive and leads."""
