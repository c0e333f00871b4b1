"""Answers that responders sign with RSA-PSS, made by openssl."""

import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import ocsp

from headwater.security.errors import OCSPError
from headwater.security.ocsp import pss
from headwater.security.ocsp.answers import read_answer

OPENSSL = "openssl"


def run(folder: Path, *words: str) -> None:
    subprocess.run([OPENSSL, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with a key of RSA, and two certificates of it."""
    folder = tmp_path_factory.mktemp("authority")
    run(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out",
        "ca.pem", "-subj", "/CN=authority", "-days", "2")  # fmt: skip
    lines = ""
    for serial, name in ((16, "one"), (17, "two")):
        run(folder, "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key",
            "-out", f"{name}.csr", "-subj", f"/CN={name}")  # fmt: skip
        run(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-set_serial", str(serial), "-days", "2", "-out", f"{name}.pem")  # fmt: skip
        lines += f"V\t491231235959Z\t\t{serial:X}\tunknown\t/CN={name}\n"
    (folder / "index.txt").write_text(lines)
    return folder


def certificate(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())


def answered(folder: Path, digest: str = "sha256", *options: str) -> bytes:
    """What openssl answers about the first certificate."""
    words = ["ocsp", "-index", "index.txt", "-CA", "ca.pem", "-rsigner", "ca.pem", "-rkey",
             "ca.key", "-issuer", "ca.pem", "-cert", "one.pem", "-ndays", "1", "-noverify",
             "-respout", "answer.der", "-no_nonce", "-rmd", digest]  # fmt: skip
    for option in ("rsa_padding_mode:pss", *options):
        words += ["-rsigopt", option]
    run(folder, *words)
    return (folder / "answer.der").read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("sha384", "rsa_pss_saltlen:digest"),
        ("sha512", "rsa_pss_saltlen:max"),
        ("sha256", "rsa_pss_saltlen:0"),
        ("sha512", "rsa_mgf1_md:sha256"),
    ],
)
def test_the_issuer_may_sign_so(folder: Path, options: tuple[str, ...]) -> None:
    raw = answered(folder, *options)
    issuer, cert = certificate(folder, "ca"), certificate(folder, "one")
    assert ocsp.load_der_ocsp_response(raw).signature_algorithm_oid == pss.OID
    assert read_answer(raw, cert, issuer).status == "good"
    with pytest.raises(OCSPError):
        read_answer(raw, certificate(folder, "two"), issuer)


def test_sha1_is_not_believed(folder: Path) -> None:
    raw = answered(folder, "sha1")
    with pytest.raises(OCSPError, match="not believed"):
        read_answer(raw, certificate(folder, "one"), certificate(folder, "ca"))


def test_every_changed_byte_is_noticed(folder: Path) -> None:
    """A byte of the parameters, of the signature or of what is signed: never another failure."""
    raw = answered(folder)
    issuer, cert = certificate(folder, "ca"), certificate(folder, "one")
    signed = ocsp.load_der_ocsp_response(raw).tbs_response_bytes
    begin = raw.index(signed)
    signature = ocsp.load_der_ocsp_response(raw).signature
    end = raw.index(signature) + len(signature)
    for at in range(begin, end):
        changed = bytearray(raw)
        changed[at] ^= 1 << (at % 8)
        with pytest.raises(OCSPError):
            read_answer(bytes(changed), cert, issuer)


def test_cut_parameters_are_no_parameters(folder: Path) -> None:
    key = certificate(folder, "ca").public_key()
    assert key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    raw = answered(folder)
    signed = ocsp.load_der_ocsp_response(raw).tbs_response_bytes
    begin = raw.index(signed) + len(signed)
    for end in range(begin, begin + 67):
        with pytest.raises(ValueError, match="RSA-PSS"):
            pss.verify(key, raw[:end], signed, b"")  # type: ignore[arg-type]
