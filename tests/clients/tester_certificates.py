"""An authority, a server's certificate and a client's, as the tester service gives them out."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

OID = x509.NameOID.COMMON_NAME


@dataclass(frozen=True)
class Issued:
    """The files of a server, and those of a client."""

    authority: Path
    certificate: Path
    key: Path
    client_certificate: Path
    client_key: Path

    def material(self, mutual: bool) -> dict[str, str]:
        """What a client is given."""
        given = {"ca_pem": self.authority.read_text()}
        if mutual:
            given["client_cert_pem"] = self.client_certificate.read_text()
            given["client_key_pem"] = self.client_key.read_text()
        return given


def _address(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[str, ec.EllipticCurvePrivateKey],
    hosts: list[str],
) -> x509.Certificate:
    named = [x509.Name([x509.NameAttribute(OID, each)]) for each in (name, issuer[0])]
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(named[0])
        .issuer_name(named[1])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(name == issuer[0], None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key()), False
        )
    )
    if hosts:
        alternatives = x509.SubjectAlternativeName([_address(host) for host in hosts])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(issuer[1], hashes.SHA256())


def issue(folder: Path, hosts: list[str]) -> Issued:
    """Make an authority and what it signs, for a server of these names and addresses."""
    folder.mkdir(parents=True)
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = (f"authority {x509.random_serial_number():x}"[:40], authority)
    written: list[Path] = []
    for name, names in ((issuer[0], []), ("server", hosts), ("client", [])):
        key = authority if name == issuer[0] else ec.generate_private_key(ec.SECP256R1())
        signed = _sign(name, key, issuer, names)
        stem = name.split()[0]
        certificate, secret = folder / f"{stem}.pem", folder / f"{stem}-key.pem"
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        written += [certificate, secret]
    return Issued(written[0], *written[2:])
