"""`headwater hub`: how a cluster is."""
