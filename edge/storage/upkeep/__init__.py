"""What keeps a running store small and sound: checkpointing, compaction, repacking, scrubbing."""
