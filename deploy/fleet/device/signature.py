"""Verifies Ed25519 signatures without a library: nothing else is there before the first slot.

It verifies only: no secret passes through here, so that its time may depend on what it gets.
Source: RFC 8032, section 5.1.7 and the reference code of section 6. Keys are NKeys' texts.
"""

import base64
import binascii
import hashlib

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
SQRT_M1 = pow(2, (P - 1) // 4, P)

Point = tuple[int, int, int, int]


def _recover_x(y: int, sign: int) -> int | None:
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    if square == 0:
        return None if sign else 0
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * SQRT_M1 % P
    if (x * x - square) % P:
        return None
    return P - x if x & 1 != sign else x


def _decompress(raw: bytes) -> Point | None:
    y = int.from_bytes(raw, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    x = _recover_x(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


def _add(a: Point, b: Point) -> Point:
    low, high = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    t, z = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = high - low, z - t, z + t, high + low
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def _times(scalar: int, point: Point) -> Point:
    result: Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


def _equal(a: Point, b: Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


_BASE_Y = 4 * pow(5, -1, P) % P
_BASE = (_recover_x(_BASE_Y, 0) or 0, _BASE_Y, 1, (_recover_x(_BASE_Y, 0) or 0) * _BASE_Y % P)


def raw_key(text: str) -> bytes:
    """32 bytes of a public key's text (56 letters). Raises ValueError."""
    try:
        body = base64.b32decode(text)
    except (binascii.Error, ValueError) as error:
        raise ValueError("not a public key") from error
    body += b"\0" * 3 if len(body) < 3 else b""
    if len(body) != 35 or binascii.crc_hqx(body[:-2], 0).to_bytes(2, "little") != body[-2:]:
        raise ValueError("not a public key")
    return body[1:33]


def verify(key: str, message: bytes, signature: bytes) -> bool:
    """Whether the owner of public key `key` signed `message`."""
    try:
        public = raw_key(key)
    except ValueError:
        return False
    if len(signature) != 64:
        return False
    a, r = _decompress(public), _decompress(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + public + message).digest()
    k = int.from_bytes(digest, "little") % ORDER
    return _equal(_times(s, _BASE), _add(r, _times(k, a)))
