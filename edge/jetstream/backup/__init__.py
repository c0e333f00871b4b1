"""Streams as archives: snapshots, restores, and the backup file."""
