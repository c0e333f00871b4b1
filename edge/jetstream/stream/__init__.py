"""A stream while it runs: messages, ages, deduplication, answers to publishers, schedules."""
