"""The meta group: which streams a cluster has, where they are, and who its nodes are."""
