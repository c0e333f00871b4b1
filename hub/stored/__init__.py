"""Raft groups whose entries are in a node's commit log and whose state is a stream of its store."""
