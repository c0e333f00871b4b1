"""What a start finds: streams with their segments, and the log's tail."""
