"""TLS contexts from plain settings."""

import hashlib
import os
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.security.errors import TLSConfigError

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

# IANA names as they stand in configuration files, and what OpenSSL calls them. The suites of
# TLS 1.3 are always on and cannot be chosen one by one.
CIPHER_SUITES: Mapping[str, str] = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}

_IANA_NAMES: dict[str, str] = {}
for _iana, _openssl in CIPHER_SUITES.items():
    _IANA_NAMES.setdefault(_openssl, _iana)

INSECURE_CIPHER_SUITES = frozenset(
    name
    for name, openssl in CIPHER_SUITES.items()
    if name.startswith("TLS_RSA_") or "RC4" in openssl or "DES" in openssl
    or name.endswith("_CBC_SHA256")
)

DEFAULT_CIPHER_SUITES = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
)
"""Suites of TLS 1.2 where the configuration names none, the best first: those of nats-server. The
last four are for clients that have nothing better."""

CURVES: Mapping[str, str] = {
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}


class Context(ssl.SSLContext):
    """A TLS context, and what a node demands beyond what the library checks."""

    pins: frozenset[str] = frozenset()
    """Lower-case hex SHA-256 of the public key infos that a peer may have; empty is any."""
    rate_limit: int = 0
    """Handshakes that may begin in one second; 0 is any number."""
    staple: Any = None
    """What a listener shows of its certificate's status, of `ocsp.stapling`; None without."""
    kept: Any = None
    """What the TLS library calls for that; it must live as long as the context."""
    _second = 0
    _begun = 0

    def may_begin(self, now: float | None = None) -> bool:
        """Whether a handshake may begin, now or at another monotonic second; counts it."""
        now = time.monotonic() if now is None else now
        if int(now) != self._second:
            self._second, self._begun = int(now), 0
        self._begun += 1
        return not 0 < self.rate_limit < self._begun

    @property
    def stands(self) -> bool:
        """Whether the certificate of a listener may be shown: not without a status that counts."""
        return self.staple is None or bool(self.staple.current)

    def trusts(self, certificate_der: bytes | None) -> bool:
        """Whether a peer with this certificate, or without any, has a pinned key."""
        return not self.pins or is_pinned(certificate_der or b"", self.pins)


def server_context(
    certificates: Sequence[tuple[str, str]],
    *,
    ca_file: str = "",
    verify: bool = False,
    min_version: str = "1.2",
    cipher_suites: Iterable[str] = (),
    curve: str = "",
    pins: Iterable[str] = (),
    rate_limit: int = 0,
) -> Context:
    """Context of a listener. `certificates` are (chain, key) paths, one per key type at most.

    `verify` demands a client certificate that `ca_file` (else the system's store) vouches
    for. Raises TLSConfigError.
    """
    context = Context(ssl.PROTOCOL_TLS_SERVER)
    context.pins = frozenset(pins)
    context.rate_limit = rate_limit
    _apply(context, certificates, min_version, cipher_suites)
    try:
        if curve:
            context.set_ecdh_curve(CURVES.get(curve, curve))
    except (ValueError, ssl.SSLError) as error:
        raise TLSConfigError(f"cannot use curve {curve}: {error}") from error
    if ca_file or verify:
        from headwater.security.tls import openssl

        _trust(context, ca_file, ssl.Purpose.CLIENT_AUTH)
        openssl.send_no_more(context)
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    return context


def client_context(
    certificates: Sequence[tuple[str, str]] = (),
    *,
    ca_file: str = "",
    insecure: bool = False,
    min_version: str = "1.2",
    cipher_suites: Iterable[str] = (),
    pins: Iterable[str] = (),
) -> Context:
    """Context of a solicited connection. `insecure` accepts any certificate of the other end.

    Raises TLSConfigError.
    """
    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    context.pins = frozenset(pins)
    _apply(context, certificates, min_version, cipher_suites)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        _trust(context, ca_file, ssl.Purpose.SERVER_AUTH)
    return context


def cipher_suite(session: ssl.SSLObject) -> str:
    """The name that IANA has for a session's cipher suite; empty before the handshake."""
    cipher = session.cipher()
    return _IANA_NAMES.get(cipher[0], cipher[0]) if cipher else ""


def verified_chain(session: ssl.SSLObject) -> list[bytes]:
    """The certificates by which a peer was verified (DER), its own first; empty without."""
    import _ssl

    found = session._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    return [each.public_bytes(_ssl.ENCODING_DER) for each in found or ()]


def is_pinned(certificate_der: bytes, pins: Iterable[str]) -> bool:
    """Whether the SHA-256 of a certificate's public key info is among `pins` (lower-case hex)."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        key = x509.load_der_x509_certificate(certificate_der).public_key()
    except ValueError:
        return False
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest() in set(pins)


def _apply(
    context: ssl.SSLContext,
    certificates: Sequence[tuple[str, str]],
    min_version: str,
    cipher_suites: Iterable[str],
) -> None:
    if min_version not in _VERSIONS:
        raise TLSConfigError(f"unsupported TLS version {min_version!r}")
    context.minimum_version = _VERSIONS[min_version]
    for chain, key in certificates:
        for path in (chain, key):
            if not os.path.isfile(path):
                raise TLSConfigError(f"no such certificate or key file: {path}")
        try:
            context.load_cert_chain(chain, key)
        except (OSError, ValueError) as error:
            text = f"cannot use certificate {chain} with key {key}: {_reason(error)}"
            raise TLSConfigError(text) from error
    chosen = tuple(cipher_suites) or DEFAULT_CIPHER_SUITES
    names = [name for name in (CIPHER_SUITES.get(each, each) for each in chosen) if name]
    if not names:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError as error:
        raise TLSConfigError(f"cannot use cipher suites: {error}") from error


def _trust(context: ssl.SSLContext, ca_file: str, purpose: ssl.Purpose) -> None:
    if not ca_file:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise TLSConfigError(f"cannot use CA file {ca_file}: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    """Why a file of certificates or keys is of no use, in words and with what to do."""
    if isinstance(error, ssl.SSLError):
        found = (error.reason or str(error)).lower().replace("_", " ")
        return f"it must be PEM, and a key must fit its certificate ({found})"
    return f"{getattr(error, 'strerror', None) or error}: correct its path or its rights"
