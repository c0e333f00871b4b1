"""A stream's messages for good: its segments, their files and indexes, and what is lost."""
