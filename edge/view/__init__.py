"""What monitoring and services see of a node, and how it and its clients are described."""
