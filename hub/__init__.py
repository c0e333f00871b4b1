"""Clustering of hub nodes."""
