"""Texts of JSON that are no Unicode: what is wrong in them stands for U+FFFD, as the reference
reads it."""

import codecs
import re

_LONE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
_LONE_SIZE = 6


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each byte; Python's own handler has one for several."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("headwater.each_byte", _replaced)


def mended(payload: bytes) -> bytes:
    """`payload` with U+FFFD for each byte that is no UTF-8, and for each half of a pair that is
    escaped alone. What is wrong outside of texts stays wrong."""
    text = payload.decode(errors="headwater.each_byte").encode()
    return _LONE.sub(_whole, text)


def _whole(found: re.Match[bytes]) -> bytes:
    escape = found[0]
    is_lone = len(escape) == _LONE_SIZE and escape[1:3].lower() == b"ud"
    return b"\\ufffd" if is_lone else escape
