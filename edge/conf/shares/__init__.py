"""What accounts share, as configured: exports and imports, and whether they fit together."""
