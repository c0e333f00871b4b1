"""One module per monitoring page."""
