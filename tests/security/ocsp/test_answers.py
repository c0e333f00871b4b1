"""Which answers of responders count."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ocsp

from headwater.security.errors import OCSPError
from headwater.security.ocsp import stapling
from headwater.security.ocsp.answers import (
    ANSWER_MAX,
    Answer,
    issuer_of,
    must_staple,
    read_answer,
    responders,
)
from tests.ocsp_authority import Authority

NOW = datetime.datetime.now(datetime.UTC)


def key_of(authority: Authority, name: str) -> ec.EllipticCurvePrivateKey:
    data = (authority.folder / f"{name}.key").read_bytes()
    key = serialization.load_pem_private_key(data, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def answer(
    about: x509.Certificate,
    authority: Authority,
    signer: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> bytes:
    builder = (
        ocsp.OCSPResponseBuilder()
        .add_response(
            cert=about,
            issuer=authority.cert,
            algorithm=hashes.SHA256(),
            cert_status=ocsp.OCSPCertStatus.GOOD,
            this_update=NOW,
            next_update=NOW + datetime.timedelta(hours=1),
            revocation_time=None,
            revocation_reason=None,
        )
        .responder_id(ocsp.OCSPResponderEncoding.HASH, signer)
    )
    if signer != authority.cert:
        builder = builder.certificates([signer])
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_the_issuer_and_who_it_has_certified_may_answer(authority: Authority) -> None:
    cert = authority.issue("node")
    helper = authority.issue("helper", signs_answers=True)
    by_issuer = answer(cert, authority, authority.cert, authority.key)
    assert read_answer(by_issuer, cert, authority.cert).status == "good"
    by_helper = answer(cert, authority, helper, key_of(authority, "helper"))
    assert read_answer(by_helper, cert, authority.cert).status == "good"


def test_nobody_else_may_answer(authority: Authority, tmp_path: Path) -> None:
    cert, other = authority.issue("node"), authority.issue("other")
    (tmp_path / "stranger").mkdir()
    stranger = Authority(tmp_path / "stranger")
    helper = stranger.issue("helper", signs_answers=True)
    bad = {
        "about another one": answer(other, authority, authority.cert, authority.key),
        "signed by a plain certificate": answer(cert, authority, other, key_of(authority, "other")),
        "by another authority": answer(cert, authority, stranger.cert, stranger.key),
        "by its helper": answer(cert, authority, helper, key_of(stranger, "helper")),
        "nothing": b"",
        "try later": b"\x30\x03\x0a\x01\x03",
        "long": bytes(ANSWER_MAX + 1),
    }
    good = answer(cert, authority, authority.cert, authority.key)
    bad |= {f"flipped {at}": flipped(good, at) for at in range(40, len(good), 9)}
    for why, raw in bad.items():
        with pytest.raises(OCSPError):
            read_answer(raw, cert, authority.cert)
            pytest.fail(why)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def test_when_an_answer_counts() -> None:
    def made(since: float, until: float) -> Answer:
        return Answer(raw=b"", status="good", since=since, until=until)

    assert made(1000, 2000).current(1500)
    assert made(1000, 2000).current(2029) and not made(1000, 2000).current(2031)
    assert made(1000, 2000).current(971) and not made(1000, 2000).current(969)
    assert made(1000, 0).current(1000 + 3600) and not made(1000, 0).current(1000 + 3700)
    assert made(1000, 0).current(1000 + 50, ttl=60) and not made(1000, 0).current(1100, ttl=60)


def test_what_certificates_say(authority: Authority) -> None:
    plain = authority.issue("plain", responder=False)
    strict = authority.issue("strict", must_staple=True)
    assert (must_staple(plain), must_staple(strict)) == (False, True)
    assert (responders(plain), responders(strict)) == ([], [authority.url])
    assert issuer_of([strict], [plain, authority.cert]) == authority.cert
    assert issuer_of([strict, authority.cert], []) == authority.cert
    for chain in ([strict], [strict, plain]):
        with pytest.raises(OCSPError, match="no issuers found"):
            issuer_of(chain, [plain])


def test_this_interpreter_can_staple() -> None:
    assert stapling.unavailable() == ""
