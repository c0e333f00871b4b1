"""A certificate as events of the system account show it."""

import base64
import hashlib


def shown_certificate(der: bytes) -> dict[str, str]:
    """Who has it and who issued it, its SHA-256 and itself, both in base64. Two attributes
    of names are abbreviated beyond those of RFC 4514, as nats-server does."""
    # Few nodes ever show one, and the library takes long to import.
    from cryptography import x509

    names = {x509.NameOID.SERIAL_NUMBER: "SERIALNUMBER", x509.NameOID.POSTAL_CODE: "POSTALCODE"}
    cert = x509.load_der_x509_certificate(der)
    return {
        "subject": cert.subject.rfc4514_string(names),
        "issuer": cert.issuer.rfc4514_string(names),
        "fingerprint": base64.b64encode(hashlib.sha256(der).digest()).decode(),
        "raw": base64.b64encode(der).decode(),
    }
