"""TLS of a dialling side: as the listener's, but it says in words why a handshake failed."""

import ssl

from headwater.edge.broker.tls_filter import TLSFilter
from headwater.edge.conf.options import TLSOptions
from headwater.edge.conf.tls_section import certificate_pairs
from headwater.security.tls import Context, client_context


class ClientTLS(TLSFilter):
    """One TLS session that this node opens to `host`."""

    def __init__(self, context: Context, host: str | None) -> None:
        super().__init__(context, server_side=False, server_hostname=host)

    def receive(self, data: bytes) -> bytes:
        """Plaintext of what came in. Raises ConnectionError with the reason in its text."""
        try:
            return super().receive(data)
        except ConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise ConnectionError(f"{error}: {cause.verify_message}") from cause
            if isinstance(cause, ssl.SSLError) and cause.reason:
                text = cause.reason.lower().replace("_", " ")
                raise ConnectionError(f"{error}: {text}") from cause
            raise


def dialled_tls(options: TLSOptions | None, host: str | None) -> ClientTLS:
    """A session to `host` by a `tls` block, or by the defaults. Raises TLSConfigError."""
    tls = options or TLSOptions()
    context = client_context(
        certificate_pairs(tls),
        ca_file=tls.ca_file,
        insecure=tls.insecure,
        min_version=tls.min_version,
        cipher_suites=tls.cipher_suites,
        pins=tls.pinned_certs,
    )
    return ClientTLS(context, host)
