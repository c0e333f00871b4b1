"""Commit log, stream segments, index, memory store and recovery."""
