"""What a node observes of itself: traffic of ended clients, the process, how far a start is."""
