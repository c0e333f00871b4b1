"""Checks configurations of streams and consumers: defaults, new ones, updates."""
