"""TLS between a socket and a connection: an `SSLObject` over memory buffers.

Sans-IO: the connection moves the bytes. `receive` takes ciphertext and gives plaintext, `send` the
reverse; both let the handshake advance.
"""

import contextlib
import ssl
from collections.abc import Callable

from headwater.security.tls.contexts import Context, verified_chain

READ_BYTES = 256 * 1024


class TLSFilter:
    """One TLS session. `on_ready(filter)` is called once, when the handshake is done."""

    def __init__(
        self,
        context: Context,
        *,
        server_side: bool = True,
        server_hostname: str | None = None,
        on_ready: Callable[["TLSFilter"], None] | None = None,
        optional: bool = False,
    ) -> None:
        """`optional` lets a peer that does not begin a handshake go on in plain text."""
        self._context = context
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
        )
        self._on_ready = on_ready
        self._optional = optional
        self._waiting = bytearray()
        self.plain = False
        self.begun = False
        self.ready = False
        self._ended = False
        self._over = False
        """Whether nothing can be said by this session any more."""

    def receive(self, data: bytes) -> bytes:
        """Plaintext of what came in. Raises ConnectionError when the session is broken."""
        begins, self.begun = not self.begun, True
        if self._optional and data and not self.ready and not self._incoming.pending:
            self.plain = self.plain or data[0] != 0x16
            self._optional = False
        if self.plain:
            return data
        if begins and self.tls.server_side and not self._context.may_begin():
            raise ConnectionError("TLS Handshake Rate Exceeded")
        if begins and self.tls.server_side and not self._context.stands:
            raise ConnectionError("OCSP Status Missing")
        self._incoming.write(data)
        try:
            return self._advance()
        except ssl.SSLError as error:
            self._over = True
            stage = "Read Error" if self.ready else "TLS Handshake Failure"
            raise ConnectionError(stage) from error

    def _advance(self) -> bytes:
        if not self.ready:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            if not self._context.trusts(self.tls.getpeercert(binary_form=True)):
                raise ConnectionError("TLS Pinned Certificate Mismatch")
            self.ready = True
            if self._on_ready is not None:
                self._on_ready(self)
        parts = []
        while True:
            try:
                part = self.tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            if not part:
                self._ended = True
                break
            parts.append(part)
        if self._ended and not parts:
            self._say_goodbye()
        return b"".join(parts)

    def _say_goodbye(self) -> None:
        """The peer has closed the session: answer in kind, and end the connection."""
        self._over = True
        with contextlib.suppress(ssl.SSLError):
            self.tls.unwrap()
        raise ConnectionError("Client Closed")

    def chain(self) -> list[bytes]:
        """The certificates by which the peer was verified (DER), its own first; empty without."""
        return verified_chain(self.tls)

    def send(self, data: bytes) -> bytes:
        """Bytes for the wire. Plaintext given before the handshake is done waits for it. What is
        given to a session that is over is lost, as is what the peer had not read."""
        if self.plain:
            return data
        if not self.ready:
            self._waiting += data
            if not self.tls.server_side:
                self._start()
            return self._outgoing.read()
        data = bytes(self._waiting) + data
        self._waiting.clear()
        if data and not self._over:
            self.tls.write(data)
        return self._outgoing.read()

    def _start(self) -> None:
        """A client speaks first; what goes wrong is reported by `receive`."""
        with contextlib.suppress(ssl.SSLError):
            self.tls.do_handshake()
