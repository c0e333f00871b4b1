"""TLS of a dialling side: as the listener's, but it says in words why a handshake failed, and it
can go by a key that is known instead of a name."""

import ssl
from collections.abc import Callable, Sequence

from headwater.edge.broker.listeners.tls_filter import TLSFilter
from headwater.edge.conf.options import TLSOptions
from headwater.edge.conf.tls_section import certificate_pairs
from headwater.security.tls.contexts import Context, client_context

_OF_TIME = frozenset((9, 10))
"""What OpenSSL answers for a certificate that is not valid yet, or not any more."""


class ClientTLS(TLSFilter):
    """One TLS session that this node opens to `host`.

    `ready` is called when the peer has shown who it is: nothing should be sent before.
    """

    def __init__(
        self, context: Context, host: str | None, ready: Callable[[TLSFilter], None] | None = None
    ) -> None:
        super().__init__(context, server_side=False, server_hostname=host, on_ready=ready)

    def receive(self, data: bytes) -> bytes:
        """Plaintext of what came in. Raises ConnectionError with the reason in its text."""
        try:
            return super().receive(data)
        except ConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, ssl.SSLCertVerificationError):
                text = cause.verify_message
                if cause.verify_code in _OF_TIME:
                    text += " by this machine's clock; is it right?"
                raise ConnectionError(f"{error}: {text}") from cause
            if isinstance(cause, ssl.SSLError) and cause.reason:
                text = cause.reason.lower().replace("_", " ")
                raise ConnectionError(f"{error}: {text}") from cause
            raise


def dialled_tls(
    options: TLSOptions | None,
    host: str | None,
    pins: Sequence[str] = (),
    ready: Callable[[TLSFilter], None] | None = None,
) -> ClientTLS:
    """A session to `host` by a `tls` block, or by the defaults. One of `pins` is proof enough: no
    authority has to vouch for it, nor the name to fit. Raises TLSConfigError."""
    tls = options or TLSOptions()
    context = client_context(
        certificate_pairs(tls),
        ca_file=tls.ca_file,
        insecure=tls.insecure or (bool(pins) and not tls.server_name),
        min_version=tls.min_version,
        cipher_suites=tls.cipher_suites,
        pins=[*tls.pinned_certs, *pins],
    )
    return ClientTLS(context, tls.server_name or host, ready)
