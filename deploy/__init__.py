"""The headwater command and the composition of nodes."""
