"""What the leader of a replicated stream has decided and its group has not committed yet."""
