"""TLS contexts with certificates made for the test, and names in them."""

import datetime
import hashlib
import ssl
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.errors import TLSConfigError
from headwater.security.tls import contexts as tls
from headwater.security.tls.certificate_users import named_by


class Paths(NamedTuple):
    """Files of one certificate authority and of a server and a client that it vouches for."""

    ca: str
    server: tuple[str, str]
    client: tuple[str, str]


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Headwater"),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _issue(directory: Path, common: str, issuer: Any, issuer_key: Any) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    alternatives = [x509.DNSName("localhost"), x509.RFC822Name(f"{common}@example.org")]
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(common))
        .issuer_name(issuer or _name(common))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), True)
    )
    if issuer is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
    certificate = builder.sign(issuer_key or key, hashes.SHA256())
    chain, secret = directory / f"{common}.pem", directory / f"{common}.key"
    chain.write_bytes(certificate.public_bytes(Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    )
    return str(chain), str(secret)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    directory = tmp_path_factory.mktemp("certificates")
    ca, ca_key = _issue(directory, "authority", None, None)
    key = load_pem_private_key(Path(ca_key).read_bytes(), None)
    return Paths(
        ca,
        _issue(directory, "server", _name("authority"), key),
        _issue(directory, "client", _name("authority"), key),
    )


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[Any, Any]:
    """Both ends after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    )
    done: set[int] = set()
    for _ in range(10):
        for index, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(index)
            except ssl.SSLWantReadError:
                continue
        if len(done) == 2:
            return ends
    raise AssertionError("the handshake does not end")


def test_mutual_handshake_names_the_client(paths: Paths) -> None:
    server = tls.server_context([paths.server], ca_file=paths.ca, verify=True)
    client = tls.client_context([paths.client], ca_file=paths.ca)
    certificate = shake_hands(server, client)[0].getpeercert()
    for name in ("client@example.org", "localhost", "O=Headwater, CN=client"):
        assert named_by(certificate, ["CN=client", "client", name]) == name
    assert named_by(certificate, ["CN=client", "client"]) is None


def test_client_certificate_is_demanded(paths: Paths) -> None:
    server = tls.server_context([paths.server], ca_file=paths.ca, verify=True)
    with pytest.raises(ssl.SSLError):
        shake_hands(server, tls.client_context(ca_file=paths.ca))


def test_unknown_authority_is_refused_unless_insecure(paths: Paths) -> None:
    server = tls.server_context([paths.server])
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, tls.client_context())
    shake_hands(server, tls.client_context(insecure=True))


def test_a_session_tells_its_suite_by_the_name_of_iana(paths: Paths) -> None:
    server = tls.server_context([paths.server])
    client = tls.client_context(insecure=True)
    assert tls.cipher_suite(shake_hands(server, client)[0]).startswith("TLS_")
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    for suite in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"):
        client.set_ciphers(suite)
        found = tls.cipher_suite(shake_hands(server, client)[0])
        assert tls.CIPHER_SUITES[found] == suite and found.startswith("TLS_ECDHE_ECDSA_WITH_")


def test_versions_suites_and_curves(paths: Paths) -> None:
    server = tls.server_context(
        [paths.server],
        min_version="1.2",
        cipher_suites=["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"],
        curve="CurveP256",
    )
    client = tls.client_context(ca_file=paths.ca)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake_hands(server, client)[0].cipher()[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    with pytest.raises(ssl.SSLError):
        shake_hands(tls.server_context([paths.server], min_version="1.3"), client)


def test_pins(paths: Paths) -> None:
    certificate = x509.load_pem_x509_certificate(Path(paths.server[0]).read_bytes())
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    der = certificate.public_bytes(Encoding.DER)
    assert tls.is_pinned(der, [hashlib.sha256(info).hexdigest()])
    assert not tls.is_pinned(der, ["0" * 64])
    assert not tls.is_pinned(b"garbage", ["0" * 64])


def test_bad_settings_are_refused(paths: Paths, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for arguments in (
        {"certificates": [("absent.pem", "absent.key")]},
        {"certificates": [(str(garbage), str(garbage))]},
        {"certificates": [(paths.server[0], paths.client[1])]},
        {"certificates": [paths.server], "ca_file": str(garbage)},
        {"certificates": [paths.server], "ca_file": "absent"},
        {"certificates": [paths.server], "min_version": "1.1"},
        {"certificates": [paths.server], "cipher_suites": ["nonsense"]},
        {"certificates": [paths.server], "curve": "nonsense"},
    ):
        with pytest.raises(TLSConfigError):
            tls.server_context(**arguments)  # type: ignore[arg-type]


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_not(text: str) -> None:
    certificate = {"subject": ((("commonName", "c"),),)}
    assert named_by(certificate, [text]) in (None, text)
