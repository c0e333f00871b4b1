"""How far a consumer is: positions, pending acks, and how both are written down."""
