"""The certificates that a listener sends: those of its file, whatever it trusts besides."""

import datetime
import socket
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bench.servers import Recipe, Server, program

Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def signed(name: str, by: Pair | None, *, authority: bool) -> Pair:
    """A certificate and its key, signed by another one, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by[0].subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(by[1] if by else key, hashes.SHA256())
    )
    return cert, key


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def sent(port: int) -> int:
    """How many certificates a listener sends."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 20) as plain:
        info = iter(lambda: plain.recv(1), b"\n")
        assert b"".join(info).startswith(b"INFO ")
        with context.wrap_socket(plain) as session:
            chain = session._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
            return len(chain)


def test_the_chain_does_not_grow_by_what_is_trusted(tmp_path: Path) -> None:
    root = signed("root", None, authority=True)
    between = signed("between", root, authority=True)
    leaf = signed("leaf", between, authority=False)
    (tmp_path / "trusted.pem").write_bytes(pem(between[0], root[0]))
    (tmp_path / "leaf.key").write_bytes(
        leaf[1].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    for file in ((leaf[0],), (leaf[0], between[0])):
        (tmp_path / "leaf.pem").write_bytes(pem(*file))
        for demand in ("false", "true"):
            config = (
                f'tls {{ cert_file: "{tmp_path}/leaf.pem", key_file: "{tmp_path}/leaf.key"\n'
                f'  ca_file: "{tmp_path}/trusted.pem", verify: {demand}, timeout: 20 }}\n'
            )
            found = []
            for command in ((program("headwater"), "serve"), (program("nats-server"),)):
                with Server(Recipe(command[0], command, config)) as server:
                    found.append(sent(server.port))
            assert found == [len(file)] * 2, (demand, found)
