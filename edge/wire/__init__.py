"""The wire format from outside a node: numbers, what a server sends, and one small client."""
