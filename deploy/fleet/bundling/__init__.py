"""Makes bundles: wheels, bytecode and perhaps an interpreter in one signed file."""
