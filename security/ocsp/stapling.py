"""Stapling: a listener shows with its certificate what the authority says of it (RFC 6066 §8).

Python's `ssl` cannot do that, OpenSSL below it can. `_ssl` is linked to the library, so its symbols
are reached through that module, and an `SSLContext` begins with its pointer to `SSL_CTX`. Whether
both hold is tried with a whole handshake (`unavailable`) before anything depends on it.
"""

import ctypes
import datetime
import functools
import ssl
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.security.tls import Context

# Numbers of OpenSSL's tls1.h and ssl.h.
_SET_CALLBACK = 63
_GET_ANSWER = 70
_SET_ANSWER = 71
_SET_TYPE = 65
_TYPE_OCSP = 1
_OK, _ALERT = 0, 2

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


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
    library = _library()

    def answer(session: int, _: int) -> int:
        try:
            raw = staple.current
            memory = library.CRYPTO_malloc(len(raw), b"stapling", 0) if raw else None
            if not memory:
                return _ALERT
            ctypes.memmove(memory, raw, len(raw))
            library.SSL_ctrl(session, _SET_ANSWER, len(raw), memory)
            return _OK
        except Exception:
            return _ALERT

    callback = _Callback(answer)
    library.SSL_CTX_callback_ctrl(_pointer(context), _SET_CALLBACK, callback)
    context.staple = staple
    context.kept = callback


@functools.cache
def unavailable() -> str:
    """Why this interpreter cannot staple; empty when it can."""
    if sys.implementation.name != "cpython" or sys.abiflags:
        return "the interpreter is not the one whose layout is known"
    try:
        library = _library()
    except (OSError, AttributeError) as error:
        return f"the TLS library cannot be reached: {error}"
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if library.SSL_CTX_get_options(_pointer(probe)) != int(probe.options):
        return "a TLS context is not laid out as expected"
    try:
        seen = _tried(b"tried")
    except (OSError, ValueError) as error:
        return f"a handshake failed: {error}"
    return "" if seen == b"tried" else "what was stapled did not arrive"


@functools.cache
def _library() -> Any:
    """The TLS library of `_ssl`. Raises OSError or AttributeError."""
    import _ssl

    library = ctypes.CDLL(_ssl.__file__)
    for name in ("SSL_CTX_ctrl", "SSL_ctrl"):
        function = getattr(library, name)
        function.restype = ctypes.c_long
        function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    library.SSL_CTX_callback_ctrl.restype = ctypes.c_long
    library.SSL_CTX_callback_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, _Callback]
    library.SSL_CTX_get_options.restype = ctypes.c_uint64
    library.SSL_CTX_get_options.argtypes = [ctypes.c_void_p]
    library.CRYPTO_malloc.restype = ctypes.c_void_p
    library.CRYPTO_malloc.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int]
    return library


def _pointer(context: ssl.SSLContext) -> int:
    """The `SSL_CTX` of a context: the first field behind the head of every object."""
    at = id(context) + object.__basicsize__
    return ctypes.c_void_p.from_address(at).value or 0


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
    library, seen = _library(), []

    def look(session: int, _: int) -> int:
        at = ctypes.c_void_p()
        size = library.SSL_ctrl(session, _GET_ANSWER, 0, ctypes.byref(at))
        seen.append(ctypes.string_at(at, size) if at and size > 0 else b"")
        return 1

    callback = _Callback(look)
    library.SSL_CTX_callback_ctrl(_pointer(client), _SET_CALLBACK, callback)
    library.SSL_CTX_ctrl(_pointer(client), _SET_TYPE, _TYPE_OCSP, None)
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
