"""The demo: a small fleet on loopback that is cut, killed, healed and analysed."""
