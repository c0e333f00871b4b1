"""Fault scripts beside the real server: kills, flipped bits, full devices, clocks that are set."""
