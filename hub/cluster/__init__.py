"""What makes nodes one JetStream cluster: frames between nodes, the driver of Raft, the service."""
