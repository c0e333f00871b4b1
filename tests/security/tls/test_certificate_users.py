"""Users whom a certificate names, by both servers."""

import datetime
import json
import socket
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import DNSName, RFC822Name, UniformResourceIdentifier
from cryptography.x509.oid import NameOID

from bench.servers import HOST, Server
from headwater.security.tls.certificate_users import parse_name
from tests.operator_realm import SERVERS, Raw, recipe

CN, OU, O, C, DC = (  # noqa: E741
    NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.ORGANIZATION_NAME,
    NameOID.COUNTRY_NAME, NameOID.DOMAIN_COMPONENT,
)  # fmt: skip
UID = x509.ObjectIdentifier("0.9.2342.19200300.100.1.1")
MAIL = NameOID.EMAIL_ADDRESS

Names = Sequence[tuple[x509.ObjectIdentifier, str]]

CASES: dict[str, tuple[Sequence[Names], Sequence[x509.GeneralName], list[str], list[str]]] = {
    "one name": ([[(CN, "one")]], [], ["CN=one", "cn = one"], ["one", "CN=One", "2.5.4.3=one"]),
    "in any order": (
        [[(C, "DE")], [(O, "Acme")], [(OU, "U")], [(CN, "two")]], [],
        ["CN=two,OU=U,O=Acme,C=DE", "C=DE, O=Acme, OU=U, CN=two", "O=Acme,CN=two,C=DE,OU=U"],
        ["CN=two,OU=U,O=Acme", "CN=two+OU=U,O=Acme,C=DE", "CN=two,OU=u,O=acme,C=de"],
    ),
    "two of a kind": (
        [[(OU, "A")], [(OU, "B")], [(CN, "three")]], [],
        ["CN=three,OU=B,OU=A", "OU=A,OU=B,CN=three", "CN=three,OU=A+OU=B"],
        ["CN=three,OU=B+OU=A", "CN=three,OU=A"],
    ),
    "components": (
        [[(DC, "org")], [(DC, "example")], [(OU, "X")], [(CN, "four")]], [],
        ["CN=four,OU=X,DC=example,DC=org", "CN=four,OU=X", "CN=four,OU=X,DC=org,DC=example"],
        ["CN=four", "DC=org,CN=four,OU=X"],
    ),
    "at once": (
        [[(C, "FR")], [(CN, "five"), (O, "M")]], [],
        ["CN=five+O=M,C=FR", "C=FR,O=M+CN=five"], ["CN=five", "O=M+CN=five"],
    ),
    "kinds without a name": (
        [[(CN, "six")], [(UID, "u")], [(MAIL, "six@x.org")]], [],
        ["CN=six"], ["six@x.org", "EMAILADDRESS=six@x.org,UID=u,CN=six", "UID=u,CN=six"],
    ),
    "signs": (
        [[(O, 'A, "B" + C')], [(CN, " s;<x>#")]], [],
        ['CN=\\ s\\;\\<x\\>#,O=A\\, \\"B\\" \\+ C', 'O=A\\2c \\22B\\22 \\2B C,CN=\\ s\\;\\<x\\>#'],
        ['CN= s;<x>#,O=A, "B" + C'],
    ),
    "an address": (
        [[(CN, "eight")]], [RFC822Name("e@x.org"), RFC822Name("f@x.org")],
        ["f@x.org", "CN=eight"], ["E@x.org"],
    ),
    "hosts": (
        [[(CN, "nine")]], [DNSName("n.x.org"), DNSName("*.y.org")],
        ["n.x.org", "*.y.org"], ["N.x.org", "a.y.org"],
    ),
    "an identity": (
        [[(CN, "ten")]], [DNSName("ten.org"), UniformResourceIdentifier("spiffe://d/ns/a")],
        ["spiffe://d/ns/a", "CN=ten"], ["spiffe://d/ns", "SPIFFE://d/ns/a"],
    ),
    "nothing but a host": ([], [DNSName("empty.org")], ["empty.org"], ["other.org"]),
}  # fmt: skip


class Issuer:
    """Makes certificates of one authority, as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(CN, "authority")])
        self._write("authority", self.name, [], self.key, authority=True)

    def issue(
        self, file: str, subject: Sequence[Names], others: Iterable[x509.GeneralName]
    ) -> None:
        groups = [
            x509.RelativeDistinguishedName([x509.NameAttribute(*pair) for pair in group])
            for group in subject
        ]
        self._write(file, x509.Name(groups), others, ec.generate_private_key(ec.SECP256R1()))

    def _write(
        self, file: str, subject: x509.Name, others: Any, key: Any, authority: bool = False
    ) -> None:
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        made = (
            x509.CertificateBuilder(self.name, subject, key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if others:
            made = made.add_extension(x509.SubjectAlternativeName(others), critical=False)
        text = made.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)
        (self.folder / f"{file}.pem").write_bytes(text)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / f"{file}.key").write_bytes(secret)

    def config(self, users: list[dict[str, str]]) -> str:
        return (
            f'tls {{ cert_file: "{self.folder}/server.pem", key_file: "{self.folder}/server.key", '
            f'ca_file: "{self.folder}/authority.pem", verify_and_map: true }}\n'
            f"authorization: {json.dumps({'users': users})}\n"
        )


class Sealed(Raw):
    """A connection that shows a certificate."""

    def __init__(self, port: int, chain: Path) -> None:
        plain = socket.create_connection((HOST, port), timeout=5)
        info = b""
        while not info.endswith(b"\n"):
            info += plain.recv(1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(chain, chain.with_suffix(".key"))
        self.info = json.loads(info[5:])
        self.socket = context.wrap_socket(plain)
        self.file = self.socket.makefile("rb")


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    made = Issuer(tmp_path_factory.mktemp("certificates"))
    made.issue("server", [[(CN, "server")]], [DNSName("localhost")])
    for name, (subject, others, _, _) in CASES.items():
        made.issue(name, subject, others)
    return made


def user_of(port: int, chain: Path, **login: str) -> str | None:
    """As whom a certificate's owner comes in; None when it does not."""
    with Sealed(port, chain) as client:
        if client.login(**login):
            return None
        return str(client.request("$SYS.REQ.USER.INFO")["data"]["user"])


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("name", SERVERS)
def test_whom_a_certificate_names(issuer: Issuer, name: str, place: int) -> None:
    wanted = {case: row[2][place] for case, row in CASES.items() if place < len(row[2])}
    refused = {case: row[3][place] for case, row in CASES.items() if place < len(row[3])}
    for users, names in ((wanted, wanted), (refused, {})):
        config = issuer.config([{"user": user} for user in users.values()])
        with Server(recipe(name, config)) as server:
            for case in users:
                found = user_of(server.port, issuer.folder / f"{case}.pem")
                assert found == names.get(case), case


@pytest.mark.parametrize("name", SERVERS)
def test_the_password_of_such_a_user_counts(issuer: Issuer, name: str) -> None:
    """A certificate does not take its place; of two users the certificate says which."""
    users = [{"user": "CN=one", "password": "p"}, {"user": "CN=eight"}]
    one, eight = issuer.folder / "one name.pem", issuer.folder / "an address.pem"
    with Server(recipe(name, issuer.config(users))) as server:
        assert user_of(server.port, one) is None
        assert user_of(server.port, one, **{"pass": "q"}) is None
        assert user_of(server.port, one, **{"pass": "p"}) == "CN=one"
        assert user_of(server.port, one, user="CN=eight", **{"pass": "p"}) == "CN=one"
        assert user_of(server.port, eight) == "CN=eight"
        assert user_of(server.port, eight, **{"pass": "p"}) is None


NAMES: dict[str, list[list[tuple[str, str]]] | None] = {
    "CN=a": [[("CN", "a")]],
    "cn = a , o= b c ": [[("CN", "a")], [("O", "b c")]],
    "CN=a+O=b,C=c": [[("CN", "a"), ("O", "b")], [("C", "c")]],
    "CN=a\\ ": [[("CN", "a ")]],
    "CN=\\c3\\bc": [[("CN", "ü")]],
    "CN=a\\,b": [[("CN", "a,b")]],
    "": [],
    "CN=": [],
    "CN": None,
    "a,CN=b": None,
    "CN=#0401": None,
    "CN=a\\": None,
    "CN=a\\x": None,
    "CN=a\\zz": None,
    ",": None,
}


@pytest.mark.parametrize("text", NAMES)
def test_names_are_read(text: str) -> None:
    wanted = NAMES[text]
    assert parse_name(text) == (None if wanted is None else [frozenset(each) for each in wanted])
