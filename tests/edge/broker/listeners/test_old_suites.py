"""Cipher suites of TLS 1.2 by default, beside nats-server: the same ones are served and refused."""

import contextlib
import ssl
from pathlib import Path

import pytest

from headwater.security.tls.contexts import CIPHER_SUITES, cipher_suite
from tests.certificates import certificate
from tests.dial import dial
from tests.differ.pair import Pair

OLD = ["TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"]
SERVED = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    *OLD,
]
REFUSED = ["TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"]
"""What this machine's library offers, and neither server takes without being asked to."""


def spoken(port: int, names: list[str], newest: ssl.TLSVersion) -> str:
    """The suite that a server chooses among these, or for TLS 1.3 any; empty when it refuses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = newest
    context.set_ciphers(":".join(CIPHER_SUITES[name] for name in names))
    with dial(port, 20) as plain, contextlib.suppress(ssl.SSLError, ConnectionError):
        info = iter(lambda: plain.recv(1), b"\n")
        assert b"".join(info).startswith(b"INFO ")
        with context.wrap_socket(plain) as session:
            session.sendall(b"CONNECT {}\r\nPING\r\n")
            assert session.recv(100)
            return chosen(session)
    return ""


def chosen(session: ssl.SSLSocket) -> str:
    """IANA's name of the suite of a session."""
    return cipher_suite(session._sslobj)  # type: ignore[attr-defined]


@pytest.mark.parametrize("named", ["", "TLS_AES_128_GCM_SHA256", OLD[0]])
def test_the_same_suites_as_nats_server(named: str, tmp_path: Path) -> None:
    files = certificate(tmp_path)
    suites = f'cipher_suites: ["{named}"]' if named else ""
    config = f"""tls {{ cert_file: "{files.cert_file}", key_file: "{files.key_file}", timeout: 20
        {suites} }}\n"""
    with Pair(config) as pair:
        found = [
            [spoken(port, [name], ssl.TLSVersion.TLSv1_2) for name in (*SERVED, *REFUSED)]
            + [spoken(port, [*SERVED, *REFUSED], ssl.TLSVersion.TLSv1_2)]
            + [spoken(port, SERVED, ssl.TLSVersion.TLSv1_3)[:4]]
            for port in pair.ports
        ]
    assert found[0] == found[1]
    if not named:
        assert found[0] == [*SERVED, "", SERVED[0], "TLS_"]
