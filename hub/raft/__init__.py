"""Consensus as a pure machine: no clock, socket, disk or randomness is touched in this package.

For the same state and the same input the output is the same. `docs/RAFT.md` tells the whole story.
"""
