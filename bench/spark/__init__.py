"""Speed of the Spark source, with controls on the same machine."""
