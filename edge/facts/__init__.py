"""What everybody tells of a node in the same words: versions, INFO, moments, addresses."""
