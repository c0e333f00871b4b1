"""What a TLS context demands beyond the library's checks: pinned keys, a limit of handshakes."""

import hashlib
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headwater.security.tls.contexts import Context, server_context
from tests.certificates import certificate


def pin_of(path: str) -> str:
    cert = x509.load_pem_x509_certificate(Path(path).read_bytes())
    info = cert.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest()


def test_pins(tmp_path: Path) -> None:
    pair = certificate(tmp_path)
    der = x509.load_pem_x509_certificate(Path(pair.cert_file).read_bytes()).public_bytes(
        Encoding.DER
    )
    files = [(pair.cert_file, pair.key_file)]
    assert server_context(files).trusts(None)
    assert server_context(files, pins=[pin_of(pair.cert_file)]).trusts(der)
    strict = server_context(files, pins=["0" * 64])
    assert not strict.trusts(der)
    assert not strict.trusts(None)


def test_handshakes_of_one_second_are_counted(tmp_path: Path) -> None:
    pair = certificate(tmp_path)
    context: Context = server_context([(pair.cert_file, pair.key_file)], rate_limit=2)
    assert [context.may_begin(5.1), context.may_begin(5.2), context.may_begin(5.9)] == [
        True, True, False
    ]
    assert context.may_begin(6.0)
