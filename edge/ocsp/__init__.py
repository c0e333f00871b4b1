"""OCSP on a node: asking responders, stapling what they say, and judging peers by it."""
