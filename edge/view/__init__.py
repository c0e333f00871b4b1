"""What monitoring and services see of a node."""
