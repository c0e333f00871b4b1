"""TLS contexts of listeners, out of their `tls` blocks."""

from typing import Any

from headwater.edge.conf.options import TLSOptions


def tls_context(options: TLSOptions) -> Any:
    """Server-side context of a `tls` block. Raises TLSConfigError."""
    from headwater.security.tls import server_context

    pairs = [(c.cert_file, c.key_file) for c in options.certificates]
    if options.cert_file:
        pairs.insert(0, (options.cert_file, options.key_file))
    return server_context(
        pairs,
        ca_file=options.ca_file,
        verify=options.verify or options.verify_and_map,
        min_version=options.min_version,
        cipher_suites=options.cipher_suites,
        curve=options.curve_preferences[0] if options.curve_preferences else "",
        pins=options.pinned_certs,
        rate_limit=options.connection_rate_limit,
    )
