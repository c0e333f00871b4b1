"""TLS contexts of listeners, out of their `tls` blocks."""

from typing import Any

import msgspec

from headwater.edge.conf.options import Options, TLSOptions


class ListenerContexts(msgspec.Struct, kw_only=True, frozen=True):
    """The context of each listener, None without TLS. A reload makes all of them anew, so that
    connections from then on see certificates that have been replaced; open ones stay."""

    clients: Any = None
    """The monitoring port's, too."""
    websocket: Any = None
    leafnodes: Any = None
    cluster: Any = None


def listener_contexts(options: Options) -> ListenerContexts:
    """Contexts of all listeners that are configured. Raises TLSConfigError."""

    def made(port: int | None, tls: TLSOptions | None) -> Any:
        return tls_context(tls) if tls is not None and port else None

    cluster = options.cluster.tls
    if cluster is not None:
        # Nodes of a cluster prove themselves to one another in any case.
        cluster = msgspec.structs.replace(cluster, verify=True)
    return ListenerContexts(
        clients=None if options.tls is None else tls_context(options.tls),
        websocket=made(options.websocket.port, options.websocket.tls),
        leafnodes=made(options.leaf.port, options.leaf.tls),
        cluster=made(options.cluster.port, cluster),
    )


def tls_context(options: TLSOptions) -> Any:
    """Server-side context of a `tls` block. Raises TLSConfigError."""
    from headwater.security.tls.contexts import server_context

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
