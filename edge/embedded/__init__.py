"""A node inside a program, for which `headwater.edge.open_node` is the door."""
