"""How answers and events of the system travel: compressed as who asks for them wants it.

As nats-server has it: `s2` or `snappy` anywhere in the words makes Snappy's frames, else `gzip`
does; other words are answered with `identity`. A node starts without what compresses.
"""

ACCEPTED = b"Accept-Encoding"


def accepted(block: bytes) -> str:
    """What a request's header block wants; empty for nothing."""
    if not block:
        return ""
    from headwater.edge.jetstream.model import headers

    found = headers.get(block, ACCEPTED)
    return found.decode("latin-1") if found else ""


def encoded(body: bytes, wanted: str) -> tuple[bytes, bytes]:
    """The body as it travels, and the header block that says how."""
    words = wanted.lower()
    if not words or not body:
        return body, b""
    if "snappy" in words or "s2" in words:
        from headwater.edge.jetstream.model import s2
        from headwater.edge.wire.s2_blocks import encode_block

        return s2.frames(body, encode_block, s2.IDENTIFIER), _block("snappy")
    if "gzip" in words:
        import gzip

        return gzip.compress(body), _block("gzip")
    return body, _block("identity")


def _block(encoding: str) -> bytes:
    return b"NATS/1.0\r\nContent-Encoding: %s\r\n\r\n" % encoding.encode()
