"""Routes: the connections between the nodes of one cluster, and what goes over them."""
