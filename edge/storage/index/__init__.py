"""Which messages a stream holds, by sequence and by subject; the stream store's interface."""
