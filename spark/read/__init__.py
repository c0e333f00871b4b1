"""Reads: planning on the driver, ranges on executors, columns for Arrow."""
