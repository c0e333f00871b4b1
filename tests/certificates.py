"""Certificates for tests that speak TLS on the loopback interface."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headwater.edge.conf.options import TLSOptions


def certificate(folder: Path, host: str = "", days: int = 1) -> TLSOptions:
    """A self-signed certificate for a name, or for the loopback address; it ends in so many days,
    or has ended so many days ago."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    now = datetime.datetime.now(datetime.UTC)
    address = (
        x509.DNSName(host) if host else x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    )
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return TLSOptions(cert_file=str(folder / "cert.pem"), key_file=str(folder / "key.pem"))
