"""RSA-PSS signatures of OCSP answers: which hashes and what salt they name (RFC 4055, RFC 8017).

`cryptography` reads these parameters of certificates, but not of OCSP answers. So the four fields
are read here, out of DER whose lengths are checked. Sans-IO.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509 import ObjectIdentifier

OID = ObjectIdentifier("1.2.840.113549.1.1.10")
"""The name of RSA-PSS as a signature's algorithm."""

SALT_MAX = 512
"""Bytes of salt; more than a key of 4096 bits has room for."""

_SEQUENCE, _OID, _INTEGER = 0x30, 0x06, 0x02
_HASH, _MASK, _SALT, _TRAILER = 0xA0, 0xA1, 0xA2, 0xA3
_MGF1 = bytes.fromhex("2a864886f70d010108")
_HASHES: dict[bytes, type[hashes.HashAlgorithm]] = {
    bytes.fromhex("608648016503040201"): hashes.SHA256,
    bytes.fromhex("608648016503040202"): hashes.SHA384,
    bytes.fromhex("608648016503040203"): hashes.SHA512,
}
"""What is believed; SHA-1, which an absent field means, is not."""


def verify(
    key: rsa.RSAPublicKey, raw: bytes, signed: bytes, signature: bytes
) -> None:
    """Check the signature of an answer `raw` (DER) over its part `signed`.

    Raises InvalidSignature when it is another's, ValueError when the parameters are none, or are
    of hashes that are not believed.
    """
    at = raw.find(signed)
    if at < 0:
        raise ValueError("the signed part is not in the answer")
    algorithm, _ = _value(raw[at + len(signed) :], _SEQUENCE)
    _, rest = _value(algorithm, _OID)
    digest, mask, salt = _parameters(rest)
    scheme = padding.PSS(mgf=padding.MGF1(mask()), salt_length=salt)
    try:
        key.verify(signature, signed, scheme, digest())
    except ValueError as error:
        raise InvalidSignature(str(error)) from error


def _parameters(
    data: bytes,
) -> tuple[type[hashes.HashAlgorithm], type[hashes.HashAlgorithm], int]:
    """Hash, hash of the mask, and salt in bytes, of the parameters of an algorithm."""
    fields: dict[int, bytes] = {}
    rest, _ = _value(data, _SEQUENCE)
    while rest:
        tag = rest[0]
        if tag not in (_HASH, _MASK, _SALT, _TRAILER) or tag in fields:
            raise ValueError("these are no parameters of RSA-PSS")
        fields[tag], rest = _value(rest, tag)
    if _HASH not in fields or _MASK not in fields:
        raise ValueError("RSA-PSS with SHA-1 is not believed")
    mask, _ = _value(fields[_MASK], _SEQUENCE)
    function, inner = _value(mask, _OID)
    if function != _MGF1:
        raise ValueError("RSA-PSS knows the mask function MGF1 only")
    salt = 20
    if _SALT in fields:
        number, _ = _value(fields[_SALT], _INTEGER)
        salt = int.from_bytes(number[:4], "big") if len(number) <= 4 else SALT_MAX + 1
    trailer, _ = _value(fields[_TRAILER], _INTEGER) if _TRAILER in fields else (b"\x01", b"")
    if salt > SALT_MAX or trailer != b"\x01":
        raise ValueError("RSA-PSS with such a salt or trailer is not believed")
    return _hash(fields[_HASH]), _hash(inner), salt


def _hash(data: bytes) -> type[hashes.HashAlgorithm]:
    """The hash that an algorithm names."""
    algorithm, _ = _value(data, _SEQUENCE)
    name, _ = _value(algorithm, _OID)
    if name not in _HASHES:
        raise ValueError("RSA-PSS with this hash is not believed")
    return _HASHES[name]


def _value(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """What is in the element in front, and what follows it. Raises ValueError."""
    if len(data) < 2 or data[0] != tag:
        raise ValueError("the parameters of RSA-PSS are no DER")
    length, begin = data[1], 2
    if length & 0x80:
        begin += length & 0x7F
        if begin > 4 or len(data) < begin:
            raise ValueError("the parameters of RSA-PSS are no DER")
        length = int.from_bytes(data[2:begin], "big")
    if len(data) < begin + length:
        raise ValueError("the parameters of RSA-PSS are cut")
    return data[begin : begin + length], data[begin + length :]
