"""JetStream domains: what must not cross a leaf link, so that each side keeps its own API.

Either side of a link answers `$JS.API.>` in its own account; requests for the other side carry its
domain, `$JS.<domain>.API.>` (NATS leaf node server, JetStream domains). System accounts never
extend one JetStream over a link here.
"""

CLIENT_API = (b"$JS.API.>", b"$KV.>", b"$OBJ.>")
"""Subjects that belong to the JetStream of the side where they are used."""

SYSTEM_API = (*CLIENT_API, b"$JSC.>", b"$NRG.>")
"""The same for the system account, with what replication uses."""


def domain_denies(
    *, own: str, peer: str, jetstream: bool, system: bool, legacy: bool
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Denies of a link as (both directions, outgoing messages only).

    `own` and `peer` are domains ("" without one), `jetstream` says whether this node has it,
    `legacy` whether the account is configured to share one API without domains.
    """
    if legacy and not system:
        return (), ()
    both = SYSTEM_API if system else CLIENT_API
    if own and jetstream and own != peer:
        return both, (b"$JS.%s.API.>" % own.encode(),)
    return both, ()
