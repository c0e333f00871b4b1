"""Stapling: a listener shows with its certificate what the authority says of it (RFC 6066 §8).

Python's `ssl` cannot do that, OpenSSL below it can. Whether it does here is tried with a whole
handshake (`unavailable`) before anything depends on it.
"""

import ctypes
import datetime
import functools
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from headwater.security.tls.contexts import Context
from headwater.security.tls.openssl import Callback, library, pointer, unknown

# Numbers of OpenSSL's tls1.h and ssl.h.
_SET_CALLBACK = 63
_GET_ANSWER = 70
_SET_ANSWER = 71
_SET_TYPE = 65
_TYPE_OCSP = 1
_OK, _ALERT = 0, 2


class Staple:
    """What one certificate's listeners show. Without an answer that counts they refuse to speak."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` gives seconds since 1970."""
        self._now = now
        self._raw = b""
        self._until = 0.0

    def show(self, raw: bytes, until: float) -> None:
        """Show an answer up to a time, in seconds since 1970; 0 is without an end."""
        self._raw, self._until = raw, until

    @property
    def current(self) -> bytes:
        """What is shown now; empty when nothing counts."""
        return self._raw if not self._until or self._now() < self._until else b""


def attach(context: Context, staple: Staple) -> None:
    """Have every handshake of a listener show the staple to who asks for it."""
    openssl = library()

    def answer(session: int, _: int) -> int:
        try:
            raw = staple.current
            memory = openssl.CRYPTO_malloc(len(raw), b"stapling", 0) if raw else None
            if not memory:
                return _ALERT
            ctypes.memmove(memory, raw, len(raw))
            openssl.SSL_ctrl(session, _SET_ANSWER, len(raw), memory)
            return _OK
        except Exception:
            return _ALERT

    callback = Callback(answer)
    openssl.SSL_CTX_callback_ctrl(pointer(context), _SET_CALLBACK, callback)
    context.staple = staple
    context.kept = callback


@functools.cache
def unavailable() -> str:
    """Why this interpreter cannot staple; empty when it can."""
    if reason := unknown():
        return reason
    try:
        seen = _tried(b"tried")
    except (OSError, ValueError) as error:
        return f"a handshake failed: {error}"
    return "" if seen == b"tried" else "what was stapled did not arrive"


def _tried(raw: bytes) -> bytes:
    """Staple in a handshake in memory; what its client has seen. Raises OSError or ValueError."""
    server = Context(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cert.pem"
        path.write_bytes(_self_signed())
        server.load_cert_chain(path)
    staple = Staple(lambda: 0.0)
    staple.show(raw, 0.0)
    attach(server, staple)
    client = Context(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    openssl, seen = library(), []

    def look(session: int, _: int) -> int:
        at = ctypes.c_void_p()
        size = openssl.SSL_ctrl(session, _GET_ANSWER, 0, ctypes.byref(at))
        seen.append(ctypes.string_at(at, size) if at and size > 0 else b"")
        return 1

    callback = Callback(look)
    openssl.SSL_CTX_callback_ctrl(pointer(client), _SET_CALLBACK, callback)
    openssl.SSL_CTX_ctrl(pointer(client), _SET_TYPE, _TYPE_OCSP, None)
    _shake(server, client)
    return seen[0] if seen else b""


def _shake(server: Context, client: Context) -> None:
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


def _self_signed() -> bytes:
    """A key and a certificate of its own, PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "check")])
    day = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(day)
        .not_valid_after(day + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + cert.public_bytes(pem)
