"""The commit log of a node: batches, the thread that syncs them, files, states, waiters."""
