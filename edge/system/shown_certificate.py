"""A certificate as events of the system account show it."""

import base64
import hashlib

from cryptography import x509

_NAMES = {
    x509.NameOID.SERIAL_NUMBER: "SERIALNUMBER",
    x509.NameOID.POSTAL_CODE: "POSTALCODE",
}
"""Attributes that nats-server abbreviates beyond those of RFC 4514."""


def shown_certificate(der: bytes) -> dict[str, str]:
    """Who has it and who issued it, its SHA-256 and itself, both in base64."""
    cert = x509.load_der_x509_certificate(der)
    return {
        "subject": cert.subject.rfc4514_string(_NAMES),
        "issuer": cert.issuer.rfc4514_string(_NAMES),
        "fingerprint": base64.b64encode(hashlib.sha256(der).digest()).decode(),
        "raw": base64.b64encode(der).decode(),
    }
