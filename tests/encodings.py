"""What travels compressed, read as clients read it."""

import gzip
from typing import Any

from headwater.edge.jetstream.model.s2 import FrameReader


def unpacked(message: Any) -> bytes:
    """The body of a message, by the encoding that its headers name."""
    encoding = (message.headers or {}).get("Content-Encoding", "")
    if encoding == "gzip":
        return gzip.decompress(message.data)
    if encoding == "snappy":
        return FrameReader().feed(message.data)
    return bytes(message.data)
