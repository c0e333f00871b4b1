"""Replicated streams: each is a Raft group whose leader lets the stream live."""
