"""WebSocket frames between a socket and a connection (RFC 6455), over `wsproto`.

Sans-IO, like the TLS filter: `receive` takes frames and gives protocol bytes, `send` the reverse.
Message boundaries mean nothing to NATS, so payloads are passed on as they come and nothing is
kept until a message is complete.
"""

import zlib
from typing import Protocol

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits
from wsproto.utilities import LocalProtocolError

from headwater.edge.websocket.lenient_decoder import LenientDecoder

FRAME_BYTES_MAX = 256 * 1024
"""Longest message sent; clients bound what they accept (nats.py: 4 MiB, browsers: memory)."""

COMPRESS_BYTES_MIN = 64
"""Shorter messages are sent as they are: deflating them costs more than it saves."""

INFLATED_BYTES_MAX = 64 * 1024 * 1024
INFLATED_PAYLOADS_MAX = 8
"""Longest message after inflating, in bytes and in times `max_payload`; more is an attack."""

TAKEN_BYTES_MAX = 256 * 1024
"""What one read hands on at once, however much it inflates to; others get their turn between."""

_POLICY = (
    "Authentication Timeout",
    "Authentication Failure",
    "Authentication Expired",
    "Slow Consumer (Pending Bytes)",
    "Slow Consumer (Write Deadline)",
    "Maximum Account Connections Exceeded",
    "Maximum Connections Exceeded",
    "Maximum Control Line Exceeded",
    "Maximum Subscriptions Exceeded",
    "Missing Account",
    "Credentials Revoked",
)
CLOSE_CODES = {
    "Client Closed": CloseReason.NORMAL_CLOSURE,
    "Server Shutdown": CloseReason.GOING_AWAY,
    "Stale Connection": CloseReason.GOING_AWAY,
    "Read Error": CloseReason.GOING_AWAY,
    "Write Error": CloseReason.GOING_AWAY,
    "Parse Error": CloseReason.PROTOCOL_ERROR,
    "Protocol Violation": CloseReason.PROTOCOL_ERROR,
    "Bad Client Protocol Version": CloseReason.PROTOCOL_ERROR,
    "Maximum Message Payload Exceeded": CloseReason.MESSAGE_TOO_BIG,
    **dict.fromkeys(_POLICY, CloseReason.POLICY_VIOLATION),
}
"""Close code of each reason for which a connection ends; 1011 for all others."""


class Filter(Protocol):
    """What stands between a socket and a connection."""

    def receive(self, data: bytes) -> bytes:
        """Protocol bytes in what came. Raises ConnectionError at the end or when it is broken."""

    def send(self, data: bytes) -> bytes:
        """Bytes for the wire."""


class WebSocketFilter:
    """One WebSocket after its handshake."""

    def __init__(
        self, *, server_side: bool = True, compression: bool = False, masked: bool = True
    ) -> None:
        """`masked` says whether clients mask what they send; a server may have agreed not to."""
        self.deflates = compression
        """Whether both ends agreed on permessage-deflate."""
        self._deflate = BoundedDeflate()
        extensions: list[Extension] = [self._deflate] if compression else []
        role = ConnectionType.SERVER if server_side else ConnectionType.CLIENT
        self._frames = Connection(role, extensions)
        self._proto: FrameProtocol = self._frames._proto
        decoder = LenientDecoder(not (server_side and masked), self._proto.extensions)
        self._proto._frame_decoder = decoder
        self._control = bytearray()
        self._reason = ""
        self._closing = False
        self._untaken = memoryview(b"")
        self._goodbye: CloseConnection | None = None
        self.more = False
        """Whether `receive(b"")` gives more, without anything having come."""

    def __del__(self) -> None:
        # The library's reader is a generator that refers to its owner, which would keep both.
        self._proto._parse_more.close()

    def bound(self, max_payload: int, before_login: int) -> None:
        """Bound inflated messages by the payload allowed, and their sum before the login."""
        self._deflate.longest = min(INFLATED_BYTES_MAX, INFLATED_PAYLOADS_MAX * max_payload)
        self._deflate.unproven = before_login

    def prove(self) -> None:
        """The client has logged in."""
        self._deflate.unproven = -1

    def receive(self, data: bytes) -> bytes:
        """Payloads of what came. Raises ConnectionError with the reason when it ends."""
        if self._untaken:
            if data:
                self._frames.receive_data(data)
            return self._next_piece()
        if self._closing:
            return b""
        if self._goodbye is not None:
            self._answer_close(self._goodbye)
        self.more = False
        if data:
            self._frames.receive_data(data)
        parts: list[bytes] = []
        size = 0
        for event in self._frames.events():
            if isinstance(event, BytesMessage):
                size += len(event.data)
                parts.append(bytes(event.data))
            elif isinstance(event, Ping):
                self._control += self._frames.send(event.response())
            elif isinstance(event, CloseConnection):
                if not parts:
                    self._answer_close(event)
                self._goodbye = event
            if size >= TAKEN_BYTES_MAX or self._goodbye is not None:
                self.more = True
                break
        if size <= TAKEN_BYTES_MAX:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        self._untaken = memoryview(b"".join(parts))
        return self._next_piece()

    def _next_piece(self) -> bytes:
        data = bytes(self._untaken[:TAKEN_BYTES_MAX])
        # An empty part of a view would keep the whole message.
        rest = self._untaken[TAKEN_BYTES_MAX:]
        self._untaken = rest if rest else memoryview(b"")
        return data

    def _answer_close(self, event: CloseConnection) -> None:
        """The peer said goodbye, or broke the protocol: answer, and end."""
        self._closing = True
        by_peer = self._frames.state.name == "REMOTE_CLOSING"
        try:
            self._control += self._frames.send(event.response() if by_peer else event)
        except LocalProtocolError as error:
            raise ConnectionError("Client Closed") from error
        raise ConnectionError("Client Closed" if by_peer else "Protocol Violation")

    def send(self, data: bytes) -> bytes:
        """Frames of `data`, after control frames that wait; a close frame last when it is time.

        What the peer sent before its close frame is answered before the close is.
        """
        parts = [bytes(self._control)]
        self._control.clear()
        if not self._closing:
            for start in range(0, len(data), FRAME_BYTES_MAX):
                piece = data[start : start + FRAME_BYTES_MAX]
                parts.append(bytes(self._proto.send_data(piece)))
            if self._reason:
                self._closing = True
                code = CLOSE_CODES.get(self._reason, CloseReason.INTERNAL_ERROR)
                parts.append(self._frames.send(CloseConnection(code=code, reason=self._reason)))
        return b"".join(parts)

    def finish(self, reason: str) -> None:
        """The connection ends for `reason`: what is sent next ends with a close frame."""
        self._reason = reason


class Frames(Filter, Protocol):
    """A WebSocket, of a listener or dialled."""

    @property
    def more(self) -> bool:
        """Whether `receive(b"")` gives more, without anything having come."""

    def prove(self) -> None:
        """The login has succeeded."""

    def finish(self, reason: str) -> None:
        """The connection ends for `reason`."""


class FilterStack:
    """A WebSocket over another filter: TLS, or what compresses its frames."""

    def __init__(self, outer: Filter, inner: Frames) -> None:
        self.outer = outer
        self.inner = inner

    def receive(self, data: bytes) -> bytes:
        """Protocol bytes of what came from the wire. Raises ConnectionError."""
        more = self.inner.more
        plain = b"" if more and not data else self.outer.receive(data)
        return self.inner.receive(plain) if plain or more else b""

    @property
    def more(self) -> bool:
        """As of either filter."""
        return self.inner.more or getattr(self.outer, "more", False)

    def prove(self) -> None:
        """The client has logged in."""
        self.inner.prove()

    def send(self, data: bytes) -> bytes:
        """Bytes for the wire."""
        return self.outer.send(self.inner.send(data))

    def finish(self, reason: str) -> None:
        """The connection ends for `reason`."""
        self.inner.finish(reason)


class BoundedDeflate(PerMessageDeflate):
    """permessage-deflate without context takeover, short messages left alone, output bounded."""

    def __init__(self) -> None:
        super().__init__(client_no_context_takeover=True, server_no_context_takeover=True)
        self._enabled = True
        self._inflated = 0
        self.longest = INFLATED_BYTES_MAX
        """Bytes of one message after inflating."""
        self.unproven = -1
        """Bytes of all messages together that may still come; -1 is any number."""

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        """Control frames come between the frames of a message and say nothing of it."""
        if not opcode.iscontrol():
            return super().frame_inbound_header(proto, opcode, rsv, payload_length)
        self._inbound_is_compressible = False
        return CloseReason.PROTOCOL_ERROR if rsv.rsv1 else RsvBits(True, False, False)

    def frame_inbound_payload_data(
        self, proto: FrameDecoder | FrameProtocol, data: bytes
    ) -> bytes | CloseReason:
        """Inflate a piece, unless the message becomes too long."""
        if not self._inbound_compressed or not self._inbound_is_compressible:
            return data
        assert self._decompressor is not None
        room = self.longest - self._inflated
        if self.unproven >= 0:
            room = min(room, self.unproven)
        try:
            piece = self._decompressor.decompress(data, room + 1)
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        if len(piece) > room:
            return CloseReason.MESSAGE_TOO_BIG
        self._inflated += len(piece)
        if self.unproven >= 0:
            self.unproven -= len(piece)
        return piece

    def frame_inbound_complete(
        self, proto: FrameDecoder | FrameProtocol, fin: bool
    ) -> bytes | CloseReason | None:
        """A frame ended; after the last one of a message the count starts anew."""
        if not self._inbound_is_compressible:
            return None
        if fin:
            self._inflated = 0
        return super().frame_inbound_complete(proto, fin)

    def frame_outbound(
        self,
        proto: FrameDecoder | FrameProtocol,
        opcode: Opcode,
        rsv: RsvBits,
        data: bytes,
        fin: bool,
    ) -> tuple[RsvBits, bytes]:
        """Deflate what is worth it."""
        if len(data) < COMPRESS_BYTES_MIN:
            return rsv, data
        return super().frame_outbound(proto, opcode, rsv, data, fin)
