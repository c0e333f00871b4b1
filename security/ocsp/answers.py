"""Requests to OCSP responders, and what their answers are worth. Sans-IO; RFC 6960.

An answer counts when it is about that certificate and is signed by the certificate's issuer, or by
a key that the issuer has certified for signing such answers.
"""

from typing import Any

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp, oid

from headwater.security.errors import OCSPError
from headwater.security.ocsp import pss

GOOD = "good"
REVOKED = "revoked"
UNKNOWN = "unknown"

ANSWER_MAX = 64 << 10
"""Bytes of an answer; with a chain of certificates it has a few thousand."""

SKEW_S = 30.0
TTL_S = 3600.0
"""How far clocks may be apart, and how long an answer counts that does not say; as nats-server."""

_STATUS = {
    ocsp.OCSPCertStatus.GOOD: GOOD,
    ocsp.OCSPCertStatus.REVOKED: REVOKED,
    ocsp.OCSPCertStatus.UNKNOWN: UNKNOWN,
}


class Answer(msgspec.Struct, kw_only=True, frozen=True):
    """What an authority says. Times are in seconds since 1970."""

    raw: bytes
    """As it came, DER."""
    status: str
    """GOOD, REVOKED or UNKNOWN."""
    since: float
    until: float
    """When there will be news; 0 when the answer does not say."""

    def current(self, now: float, skew: float = SKEW_S, ttl: float = TTL_S) -> bool:
        """Whether it counts at a time."""
        until = self.until or self.since + ttl
        return self.since <= now + skew and now - skew <= until


def request_for(cert: x509.Certificate, issuer: x509.Certificate) -> bytes:
    """The DER request about a certificate."""
    builder = ocsp.OCSPRequestBuilder().add_certificate(cert, issuer, hashes.SHA1())
    return builder.build().public_bytes(Encoding.DER)


def read_answer(raw: bytes, cert: x509.Certificate, issuer: x509.Certificate) -> Answer:
    """What an answer says of a certificate. Raises OCSPError when it does not count."""
    if len(raw) > ANSWER_MAX:
        raise OCSPError("the answer is too long")
    try:
        response = ocsp.load_der_ocsp_response(raw)
        if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            raise OCSPError(f"the responder says {response.response_status.name.lower()}")
        single = _about(response, cert, issuer)
        _check_signature(raw, response, issuer)
        until = single.next_update_utc
        return Answer(
            raw=raw,
            status=_STATUS[single.certificate_status],
            since=single.this_update_utc.timestamp(),
            until=until.timestamp() if until is not None else 0.0,
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise OCSPError(f"the answer cannot be read: {error}") from error


def _about(response: ocsp.OCSPResponse, cert: x509.Certificate, issuer: x509.Certificate) -> Any:
    """The part of a response that is about a certificate."""
    for single in response.responses:
        builder = ocsp.OCSPRequestBuilder()
        asked = builder.add_certificate(cert, issuer, single.hash_algorithm).build()
        if (
            single.serial_number == asked.serial_number
            and single.issuer_key_hash == asked.issuer_key_hash
            and single.issuer_name_hash == asked.issuer_name_hash
        ):
            return single
    raise OCSPError("the answer is about another certificate")


def _check_signature(
    raw: bytes, response: ocsp.OCSPResponse, issuer: x509.Certificate
) -> None:
    """Raises OCSPError unless the issuer, or somebody whom it has certified for that, signed."""
    for signer in (issuer, *response.certificates):
        if not _signed_by(raw, response, signer):
            continue
        if signer == issuer:
            return
        try:
            signer.verify_directly_issued_by(issuer)
            usage = signer.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
            continue
        produced = response.produced_at_utc
        valid = signer.not_valid_before_utc <= produced <= signer.not_valid_after_utc
        if valid and oid.ExtendedKeyUsageOID.OCSP_SIGNING in usage:
            return
    raise OCSPError("the answer is not signed by the certificate's issuer")


def _signed_by(raw: bytes, response: ocsp.OCSPResponse, signer: x509.Certificate) -> bool:
    key = signer.public_key()
    signature, content = response.signature, response.tbs_response_bytes
    try:
        if response.signature_algorithm_oid == pss.OID:
            if not isinstance(key, rsa.RSAPublicKey):
                return False
            pss.verify(key, raw, content, signature)
            return True
        algorithm = response.signature_hash_algorithm
        if isinstance(key, rsa.RSAPublicKey) and algorithm is not None:
            key.verify(signature, content, padding.PKCS1v15(), algorithm)
        elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm is not None:
            key.verify(signature, content, ec.ECDSA(algorithm))
        elif isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
            key.verify(signature, content)
        else:
            return False
    except InvalidSignature:
        return False
    return True


def responders(cert: x509.Certificate) -> list[str]:
    """URLs at which the issuer of a certificate answers; empty when it names none."""
    try:
        access = cert.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    urls = [
        each.access_location.value
        for each in access
        if each.access_method == oid.AuthorityInformationAccessOID.OCSP
        and isinstance(each.access_location, x509.UniformResourceIdentifier)
    ]
    return [url for url in urls if url.startswith(("http://", "https://"))]


def must_staple(cert: x509.Certificate) -> bool:
    """Whether a certificate demands that its status is shown with it (RFC 7633)."""
    try:
        features = cert.extensions.get_extension_for_class(x509.TLSFeature).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return x509.TLSFeatureType.status_request in features


def issuer_of(
    chain: list[x509.Certificate], authorities: list[x509.Certificate]
) -> x509.Certificate:
    """The authority that has issued the first one of a chain. Raises OCSPError."""
    cert, *others = chain
    for each in (*others[:1], *authorities):
        try:
            cert.verify_directly_issued_by(each)
            basic = each.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
            continue
        if basic.ca:
            return each
    raise OCSPError("no issuers found: put the issuer behind the certificate, or in ca_file")
