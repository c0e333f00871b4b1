"""OCSP: what an authority says of a certificate (RFC 6960), and how a listener shows it."""
