"""Log lines: their form, where they go, and how many there may be."""
