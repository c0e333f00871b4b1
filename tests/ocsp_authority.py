"""An authority of certificates, with `openssl ocsp` as its responder."""

import datetime
import ipaddress
import subprocess
from pathlib import Path
from types import TracebackType

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from bench.servers import free_port
from tests.waiting import until_seen

DAY = datetime.timedelta(days=1)


class Authority:
    """Issues and revokes certificates; a context manager that answers for them meanwhile."""

    def __init__(self, folder: Path, minutes: int = 60) -> None:
        """Answers of its responder count for so many minutes."""
        self.folder = folder
        self.minutes = minutes
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self.now = datetime.datetime.now(datetime.UTC)
        self.serial = 4096
        self.lines: dict[int, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.cert = self._sign(self._begin(self.name, self.key, ca=True))
        self.file = self._write("ca", self.cert, self.key)
        self._index()

    def _begin(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.CertificateBuilder:
        self.serial += 1
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(self.serial)
            .not_valid_before(self.now - DAY)
            .not_valid_after(self.now + DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )

    def _sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self.key, hashes.SHA256())

    def _write(self, name: str, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> str:
        pem = serialization.Encoding.PEM
        (self.folder / f"{name}.pem").write_bytes(cert.public_bytes(pem))
        private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (self.folder / f"{name}.key").write_bytes(key.private_bytes(pem, *private))
        return str(self.folder / f"{name}.pem")

    def issue(
        self,
        name: str,
        *,
        must_staple: bool = False,
        responder: bool = True,
        signs_answers: bool = False,
    ) -> x509.Certificate:
        """Write `<name>.pem` and `<name>.key`, for the loopback address."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = self._begin(subject, key, ca=False).add_extension(
            x509.SubjectAlternativeName([address]), critical=False
        )
        if responder:
            place = x509.UniformResourceIdentifier(self.url)
            access = x509.AccessDescription(oid.AuthorityInformationAccessOID.OCSP, place)
            builder = builder.add_extension(
                x509.AuthorityInformationAccess([access]), critical=False
            )
        if must_staple:
            feature = x509.TLSFeature([x509.TLSFeatureType.status_request])
            builder = builder.add_extension(feature, critical=False)
        if signs_answers:
            usage = x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.OCSP_SIGNING])
            builder = builder.add_extension(usage, critical=False)
        cert = self._sign(builder)
        self._write(name, cert, key)
        self.lines[cert.serial_number] = "V"
        self._index()
        return cert

    def revoke(self, cert: x509.Certificate) -> None:
        """Say from now on that a certificate is revoked."""
        self.lines[cert.serial_number] = "R"
        self._index()

    def forget(self, cert: x509.Certificate) -> None:
        """Say from now on that it is unknown."""
        del self.lines[cert.serial_number]
        self._index()

    def _index(self) -> None:
        until = (self.now + DAY).strftime("%y%m%d%H%M%SZ")
        when = (self.now - DAY).strftime("%y%m%d%H%M%SZ")
        text = "".join(
            f"{kind}\t{until}\t{when if kind == 'R' else ''}\t{serial:X}\tunknown\t/CN=c{serial}\n"
            for serial, kind in self.lines.items()
        )
        beside = self.folder / "index.new"
        beside.write_text(text)
        beside.replace(self.folder / "index.txt")
        if self.process is not None:
            # It looks whether the file has changed before it waits: one question passes that.
            command = ["openssl", "ocsp", "-issuer", "ca.pem", "-serial", "1", "-url", self.url]
            subprocess.run(
                [*command, "-noverify"], cwd=self.folder, capture_output=True, check=False
            )

    def __enter__(self) -> "Authority":
        command = [
            "openssl", "ocsp", "-index", "index.txt", "-CA", "ca.pem", "-rsigner", "ca.pem",
            "-rkey", "ca.key", "-port", str(self.port), "-nmin", str(self.minutes),
        ]  # fmt: skip
        with (self.folder / "responder.log").open("w") as output:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT
            )
        # It serves one connection at a time, so nobody tries whether it is there.
        log = self.folder / "responder.log"
        until_seen(lambda: "waiting for" in log.read_text(), "it listens")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Answer no more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None


def seen_by_openssl(port: int, authority: str) -> str:
    """What `openssl s_client` says of a listener's status."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-status"]
    run = subprocess.run(
        [*command, "-CAfile", authority], input=b"", capture_output=True, timeout=20, check=False
    )
    return run.stdout.decode("utf-8", "replace") + run.stderr.decode("utf-8", "replace")
