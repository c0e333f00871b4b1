"""Links between a hub and edges: how fast copies catch up, and what a slow line does to them."""
