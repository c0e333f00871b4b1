"""What keeps a running store small and sound: retirement, compaction, repacking, scrubbing."""
