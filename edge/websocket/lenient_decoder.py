"""Frames that a server reads beyond RFC 6455: nats-server does, so clients rely on it. Sans-IO.

Lengths may use more bytes than they need, and what a text frame holds need not be text.
"""

from wsproto.frame_protocol import Frame, FrameDecoder, Opcode, ParseFailed

_EXTENDED_BYTES = {126: 2, 127: 8}


class LenientDecoder(FrameDecoder):
    """Frames of a peer. Made with `client` true it wants them unmasked, else masked."""

    def process_buffer(self) -> Frame | None:
        """The next piece of a frame, None without; text is bytes like any other."""
        frame = super().process_buffer()
        if frame is not None and frame.opcode is Opcode.TEXT:
            return frame._replace(opcode=Opcode.BINARY)
        return frame

    def parse_extended_payload_length(self, opcode: Opcode, payload_len: int) -> int | None:
        """Bytes of a frame by its short length, None while they have not come.

        Raises ParseFailed when a control frame is too long, or any longer than 2^63 - 1.
        """
        extra = _EXTENDED_BYTES.get(payload_len, 0)
        if not extra or opcode.iscontrol():
            return super().parse_extended_payload_length(opcode, payload_len)
        data = self.buffer.consume_exactly(extra)
        if data is None:
            return None
        size = int.from_bytes(data, "big")
        if size >> 63:
            raise ParseFailed("a frame is longer than 2^63 - 1 bytes")
        return size
