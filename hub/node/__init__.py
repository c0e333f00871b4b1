"""A node of a cluster put together: the service, healing of replicas, and how leaders spread."""
