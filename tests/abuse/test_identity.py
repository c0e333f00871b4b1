"""A21 to A33: who somebody claims to be, and what that one may do, on every listener."""

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.servers import Server, ServerFailed, free_port
from headwater.security import jwt
from headwater.security.claims import (
    Export,
    Import,
    SigningScope,
    SubjectPermission,
    TimeRange,
    UserLimits,
)
from headwater.security.nkeys import KeyPair
from headwater.security.tls.certificate_users import named_by
from tests.abuse.attacked import Attacked, attacked
from tests.certificates import certificate
from tests.measuring import within
from tests.operator_realm import Raw, Realm, User, recipe

DAY = 86_400


class StrictRealm(Realm):
    """A realm whose account "A" has revoked a user and exports to those with a token."""

    def __init__(self) -> None:
        super().__init__()
        self.revoked = self.user()
        self.bodies["A"].revocations = {self.revoked.pair.public_key: int(time.time()) + 10}
        self.bodies["A"].exports = [
            Export(subject="closed.*", type="service", token_req=True),
            Export(subject="own.*", type="stream", account_token_position=2),
        ]


@pytest.fixture(scope="module")
def realm() -> StrictRealm:
    return StrictRealm()


@pytest.fixture(scope="module")
def doors(realm: Realm) -> Iterator[dict[str, int]]:
    """Ports of a node in operator mode that takes clients and leafs."""
    leaf = free_port()
    extra = f"leafnodes {{ listen: '127.0.0.1:{leaf}' }}"
    with Server(recipe("headwater", realm.config(extra))) as server:
        yield {"client": server.port, "leaf": leaf}
        assert server.alive()
        assert b"Traceback" not in server.log_path.read_bytes()


def admitted(doors: dict[str, int], user: User, listener: str = "client", **fields: Any) -> bool:
    """Whether a listener takes a user."""
    with Raw(doors[listener]) as raw:
        if listener == "leaf":
            said = raw.link(user, **fields)
            return any(line.startswith("LS+") for line in [*said, *raw.send()])
        return raw.login(user, **fields) == [] and raw.send() == []


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def forged(
    realm: Realm, header: dict[str, Any], change: Callable[[dict[str, Any]], None] | None = None
) -> User:
    """A user whose token has another header or other claims, and a right signature."""
    user = realm.user()
    _, body, _ = user.token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    if change is not None:
        change(claims)
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}"
    signer = realm.keys["A"]
    return User(user.pair, f"{signed}.{b64(signer.sign(signed.encode()))}")


HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
ORDER = 2**252 + 27742317777372353535851937790883648493


def malleable(realm: Realm) -> User:
    """A user whose token's signature has its scalar raised by the order of the group."""
    user = realm.user()
    head, body, text = user.token.split(".")
    raw = base64.urlsafe_b64decode(text + "==")
    scalar = int.from_bytes(raw[32:], "little") + ORDER
    return User(user.pair, f"{head}.{body}.{b64(raw[:32] + scalar.to_bytes(32, 'little'))}")


def issued_by(key: Any) -> Callable[[dict[str, Any]], None]:
    return lambda claims: claims.update(iss=key)


TOKENS: dict[str, Callable[[StrictRealm], User]] = {
    "expired": lambda realm: realm.user(exp=int(time.time()) - 5),
    "not yet": lambda realm: forged(
        realm, HEADER, lambda claims: claims.update(nbf=int(time.time()) + DAY)
    ),
    "revoked": lambda realm: realm.revoked,
    "another's signature": lambda realm: realm.user(signer=KeyPair.create("A")),
    "signed by itself": lambda realm: realm.user(signer=KeyPair.create("U")),
    "truncated issuer": lambda realm: forged(realm, HEADER, issued_by(realm.account("A")[:-4])),
    "oversized issuer": lambda realm: forged(realm, HEADER, issued_by(realm.account("A") * 3)),
    "empty issuer": lambda realm: forged(realm, HEADER, issued_by("")),
    "issuer of another type": lambda realm: forged(realm, HEADER, issued_by(["A"])),
    "issuer is the operator": lambda realm: forged(
        realm, HEADER, issued_by(realm.operator.public_key)
    ),
    "another account": lambda realm: forged(
        realm, HEADER, lambda claims: claims["nats"].update(issuer_account=realm.account("B"))
    ),
    "no algorithm": lambda realm: forged(realm, {"typ": "JWT", "alg": "none"}),
    "HMAC": lambda realm: forged(realm, {"typ": "JWT", "alg": "HS256"}),
    "algorithm is no text": lambda realm: forged(realm, {"typ": "JWT", "alg": ["ed25519-nkey"]}),
    "wrong kind": lambda realm: forged(
        realm, HEADER, lambda claims: claims["nats"].update(type="account")
    ),
    "subject is no user": lambda realm: forged(
        realm, HEADER, lambda claims: claims.update(sub=realm.account("A"))
    ),
    "malleable signature": malleable,
    "no signature": lambda realm: User(
        (user := realm.user()).pair, user.token.rpartition(".")[0] + "."
    ),
    "four parts": lambda realm: User((user := realm.user()).pair, user.token + ".AAAA"),
    "nothing": lambda realm: User(realm.user().pair, ""),
    "an account's token": lambda realm: User(realm.user().pair, realm.token("A")),
    "a megabyte": lambda realm: User(realm.user().pair, "eyJ" + "A" * 900_000 + ".A.A"),
    "bearer of another key": lambda realm: User(KeyPair.create("U"), realm.user().token),
}


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("listener", ["client", "leaf"])
def test_a21_tokens(realm: StrictRealm, doors: dict[str, int], kind: str, listener: str) -> None:
    """tokens that are expired, not valid yet, revoked, of other issuers, accounts and kinds, \
with truncated keys, changed signatures or another algorithm | refused on every listener"""
    assert admitted(doors, realm.user(), listener)
    with contextlib.suppress(ConnectionError):
        assert not admitted(doors, TOKENS[kind](realm), listener)


def test_a21_activation_tokens_of_others(realm: Realm) -> None:
    """an activation token for another account, subject or service | the import is not in force"""
    target = Realm(more="C")
    target.bodies["A"].exports = [Export(subject="closed.>", type="service", token_req=True)]
    for subject, to in (("closed.a", "C"), ("other.a", "B"), ("closed.>", "S")):
        claims = jwt.ActivationClaims(sub=target.account(to), name="x")
        claims.nats.subject, claims.nats.kind = subject, "service"
        token = jwt.encode(claims, target.keys["A"])
        target.bodies["B"].imports = [
            Import(subject="closed.a", account=target.account("A"), type="service", token=token)
        ]
        with (
            Server(recipe("headwater", target.config())) as server,
            Raw(server.port) as a,
            Raw(server.port) as b,
        ):
            a.login(target.user("A"))
            a.send("SUB closed.a 1\r\n")
            b.login(target.user("B"))
            b.send("PUB closed.a 0\r\n\r\n")
            assert a.send() == []


def test_a22_circles_of_imports() -> None:
    """accounts that import from one another in a circle, and from themselves | refused in a \
configuration; by tokens, a request ends after a bounded number of accounts"""
    for n in (2, 5):
        accounts = "".join(
            f"C{i} {{ users: [{{user: u{i}, password: p}}], exports: [{{service: x}}],"
            f" imports: [{{service: {{account: C{(i + 1) % n}, subject: x}}}}] }}\n"
            for i in range(n)
        )
        with pytest.raises(ServerFailed, match="cycle"):
            Server(recipe("headwater", f"accounts {{ {accounts} }}")).__enter__()
    realm = Realm()
    for one, other in (("A", "B"), ("B", "A")):
        realm.bodies[one].exports = [Export(subject="x", type="service")]
        realm.bodies[one].imports = [
            Import(subject="x", account=realm.account(other), type="service")
        ]
    with Server(recipe("headwater", realm.config())) as server, Raw(server.port) as raw:
        raw.login(realm.user())
        began = time.monotonic()
        assert raw.send("PUB x inbox 0\r\n\r\n" * 100) == []
        assert within(time.monotonic() - began, 2)
        assert b"Traceback" not in server.log_path.read_bytes()


def test_a23_a_signature_again(realm: Realm, doors: dict[str, int]) -> None:
    """a nonce's signature on another connection | refused, every connection has its own nonce"""
    user = realm.user()
    with Raw(doors["client"]) as first, Raw(doors["client"]) as second:
        assert first.info["nonce"] != second.info["nonce"]
        fields = user.fields(first.info["nonce"])
        assert first.login(**fields) == []
        assert second.login(**fields) == ["-ERR 'Authorization Violation'"]


@pytest.fixture(scope="module")
def node_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("attacked")) as node:
        yield node


@pytest.mark.parametrize("pattern", ["secret.a", "secret.*", "*.a", ">", "*.>", "secret.>"])
@pytest.mark.parametrize("queue", ["", "queue", "other"])
@pytest.mark.parametrize("via", ["client", "leaf"])
def test_a24_denied_subjects(node: Attacked, pattern: str, queue: str, via: str) -> None:
    """a deny below a wildcard, with and without queue, over clients and leafs | refused, or \
filtered where messages are delivered; a deny always wins"""
    verb = "SUB" if via == "client" else "LS+"
    last = " 1" if via == "client" or queue else ""
    with node.login("shy") if via == "client" else node.leaf("shy") as ear, node.login() as mouth:
        with contextlib.suppress(ConnectionError):
            ear.send(f"{verb} {pattern}{' ' if queue else ''}{queue}{last}\r\n")
        mouth.send("PUB secret.a 2\r\nhi\r\nPUB open.a 2\r\nhi\r\n")
        heard = []
        with contextlib.suppress(ConnectionError):
            heard = ear.send()
        assert not any("secret" in line and "MSG" in line for line in heard), heard


def test_a24_denied_subjects_out_of_streams(node: Attacked) -> None:
    """a denied subject that comes out of a stream's republish, or as a push delivery | not \
delivered to who may not have it"""
    republish = {"src": "in.*", "dest": "secret.$1"}
    with node.login() as owner, node.login("shy") as ear:
        config = {"name": "R", "subjects": ["in.*"], "republish": republish}
        assert "error" not in owner.request("$JS.API.STREAM.CREATE.R", config)
        told = ear.send("SUB secret.x 1\r\nSUB > 2\r\nSUB secret.* queue 3\r\n")
        assert len([line for line in told if "Permissions Violation" in line]) == 2
        owner.request("in.x", b"hello")
        push = {"stream_name": "R", "config": {"deliver_subject": "secret.push"}}
        assert "error" not in owner.request("$JS.API.CONSUMER.CREATE.R", push)
        assert not any(" secret." in line or "MSG secret" in line for line in ear.send())
        owner.request("$JS.API.STREAM.DELETE.R")


def test_a25_replies_that_are_the_nodes(node: Attacked) -> None:
    """replies `$JS.ACK`, `_R_` from clients and leafs | refused, and never given a meaning"""
    for reply in ("$JS.ACK.S.C.1.1.1.1.0", "_R_.x.y"):
        with node.login() as raw:
            assert "Permissions Violation" in "".join(raw.send(f"PUB a {reply} 0\r\n\r\n"))
    for subject in ("$JS.ACK.S.C.1.9.9.9.0", "$JS.FC.S.C.x", "_R_.a.b", "$NRG.V.x", "$JS.M.x"):
        with node.login() as raw, node.leaf() as leaf:
            answer = "".join(raw.send(f"PUB {subject} 4\r\n+TRM\r\n"))
            # What servers of a cluster say to each other is no client's to say.
            assert ("Permissions Violation" in answer) == subject.startswith("$NRG."), answer
            leaf.send(f"LMSG {subject} 4\r\n+TRM\r\n")


ADMIN = [
    "$JS.API.ACCOUNT.PURGE.{a}", "$JS.API.SERVER.REMOVE", "$JS.API.META.LEADER.STEPDOWN",
    "$JS.API.ACCOUNT.STREAM.MOVE.{a}.V", "$JS.API.ACCOUNT.STREAM.CANCEL_MOVE.{a}.V",
    "$JS.API.STREAM.LEADER.STEPDOWN.V", "$JS.API.STREAM.PEER.REMOVE.V", "$JS.API.META.RESCUE",
    "$SYS.REQ.SERVER.{id}.KICK", "$SYS.REQ.SERVER.{id}.LDM", "$SYS.REQ.SERVER.{id}.RELOAD",
    "$SYS.REQ.ACCOUNT.{a}.CONNZ", "$SYS.REQ.ACCOUNT.{a}.SUBSZ", "$SYS.REQ.ACCOUNT.{a}.JSZ",
    "$SYS.REQ.SERVER.{id}.VARZ", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.CLAIMS.UPDATE",
    "$SYS.REQ.ACCOUNT.{a}.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.DELETE", "$SYS.REQ.CLAIMS.LIST",
    "$SYS.REQ.SERVER.PING.PROFILEZ", "$SYS.DEBUG.SUBSCRIBERS",
]  # fmt: skip


@pytest.mark.parametrize("subject", ADMIN)
def test_a26_requests_of_operators(node: Attacked, subject: str) -> None:
    """administration of JetStream, servers, accounts and claims from an ordinary account | \
answered with an error or by nobody; nothing of another account is told or changed"""
    with node.login("a") as owner, node.login("b") as raw:
        created = owner.request("$JS.API.STREAM.CREATE.V", {"name": "V", "subjects": ["v"]})
        assert "error" not in created or created["error"]["err_code"] == 10058
        asked = subject.format(a="A", id=raw.info["server_id"])
        answer = raw.request(asked, {"cid": owner.info["client_id"], "account": "A"}, 0.3)
        assert answer is None or isinstance(answer, str) or "error" in answer, answer
        assert owner.send() == []
        assert "error" not in owner.request("$JS.API.STREAM.INFO.V")
        assert owner.send("SUB $SYS.> 1\r\nSUB $SYS.ACCOUNT.*.CONNECT 2\r\n") == []
        with node.login("b"):
            assert owner.send() == []


TEMPLATES = [
    "{{tag(", "{{tag()}}", "{{nope()}}", "{{}}", "{{tag(x)}}.{{", "a {{name()}}", "{{subject()}}.>",
    "{{tag(../x)}}", "{{name()}}\r\nPING", " ", "{{tag(many)}}" * 12,
]


def test_a27_templates(doors: dict[str, int]) -> None:
    """templates with malformed functions, tags like paths, expansions without bounds | the user \
is refused, or gets what the words say; the node lives"""
    for template in TEMPLATES:
        realm = Realm()
        key = KeyPair.create("A")
        limits = UserLimits.unlimited()
        limits.pub.allow = [template]
        realm.bodies["A"].signing_keys = [SigningScope(key=key.public_key, template=limits)]
        with Server(recipe("headwater", realm.config())) as server:
            tags = [f"many:{n}" for n in range(30)] + ["x:..", "x:a.>", "x:a b"]
            user = realm.user(
                signer=key, subs=0, data=0, payload=0, tags=tags
            )
            with Raw(server.port) as raw:
                raw.login(user)
                with contextlib.suppress(ConnectionError):
                    raw.send("PUB other 0\r\n\r\n")
            assert server.alive()
            assert b"Traceback" not in server.log_path.read_bytes(), template


@pytest.mark.parametrize("rule", [" ", "a b c", "a..b", "x\r\ny", ">.a", "\x00"])
@pytest.mark.parametrize("side", ["allow", "deny"])
@pytest.mark.parametrize("listener", ["client", "leaf"])
def test_a27_rules_that_are_none(
    realm: Realm, doors: dict[str, int], rule: str, side: str, listener: str
) -> None:
    """permissions that are no subjects | the user is refused on every listener: a rule that \
cannot be understood is never left out"""
    user = realm.user(pub=SubjectPermission(**{side: [rule]}))
    assert not admitted(doors, user, listener)


def hours(start: float, end: float) -> TimeRange:
    now = time.time()
    clock = [time.strftime("%H:%M:%S", time.gmtime(now + shift)) for shift in (start, end)]
    return TimeRange(start=clock[0], end=clock[1])


@pytest.mark.parametrize("listener", ["client", "leaf"])
@pytest.mark.parametrize(
    ("claim", "client", "leaf"),
    [
        ({"allowed_connection_types": ["STANDARD"]}, True, False),
        ({"allowed_connection_types": ["LEAFNODE"]}, False, True),
        ({"allowed_connection_types": ["NONSENSE"]}, False, False),
        ({"src": ["127.0.0.0/8"]}, True, True),
        ({"src": ["10.0.0.0/8"]}, False, False),
        ({"src": ["nonsense"]}, False, False),
        ({"times": [hours(-3600, 3600)], "times_location": "UTC"}, True, True),
        ({"times": [hours(3600, -3600)], "times_location": "UTC"}, False, False),
        ({"times": [hours(3600, 7200)], "times_location": "UTC"}, False, False),
        ({"proxy_required": True}, False, False),
    ],
    # Names hold no time of day: workers that collect in different seconds must agree on them.
    ids=[
        "clients only",
        "leafs only",
        "an unknown type",
        "from here",
        "from elsewhere",
        "from nowhere",
        "now",
        "but for now",
        "in an hour",
        "behind a proxy",
    ],
)
def test_a28_where_when_and_how(
    realm: Realm, doors: dict[str, int], listener: str, claim: Any, client: bool, leaf: bool
) -> None:
    """connection types, networks, times (across midnight, too), proxies | asked on every \
listener, before a first verb that is no CONNECT, too"""
    user = realm.user(**claim)
    assert admitted(doors, user, listener) == (client if listener == "client" else leaf)


def name_of(*parts: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {"subject": parts}


def test_a29_names_of_certificates() -> None:
    """names with parts of several values, in another order, escaped, with NUL | equal only \
when they are the same name; never a part of one"""
    multi = name_of((("organizationName", "x"), ("commonName", "a")))
    assert named_by(multi, ["CN=a"]) is None
    assert named_by(multi, ["O=x+CN=a"]) == "O=x+CN=a"
    assert named_by(name_of((("commonName", "a\x00b"),)), ["CN=a"]) is None
    two = name_of((("commonName", "a,O=x"),))
    assert named_by(two, ["CN=a,O=x"]) is None
    assert named_by(two, [r"CN=a\,O\=x"]) == r"CN=a\,O\=x"
    assert named_by(name_of((("commonName", "a"),)), [""]) is None


def test_a30_who_asks(node: Attacked) -> None:
    """a made-up `Nats-Request-Info` header from a client or a leaf | the service sees what the \
node knows of the requester, or nothing; never what it says itself"""
    forged_info = b'NATS/1.0\r\nNats-Request-Info: {"acc":"SYS","user":"root"}\r\n\r\n'
    with node.login("a", headers=True) as service, node.login("b", headers=True) as asker:
        service.send("SUB svc 1\r\n")
        head = b"HPUB svc back %d %d\r\n" % (len(forged_info), len(forged_info))
        asker.socket.sendall(head + forged_info + b"\r\n")
        asker.send()
        heard = "\n".join(service.send())
        assert "HMSG svc" in heard or "MSG svc" in heard
        assert "root" not in heard, heard


def test_a31_traces(node: Attacked) -> None:
    """a trace to a subject that the sender may not publish on, and a message that is only \
traced | refused as a publish of its own; it is not stored and not delivered"""
    dest = b"NATS/1.0\r\nNats-Trace-Dest: traced\r\nNats-Trace-Only: true\r\n\r\n"
    with node.login("a") as ear, node.login("shy", headers=True) as shy:
        ear.send("SUB traced 1\r\nSUB open 2\r\n")
        shy.socket.sendall(b"HPUB open %d %d\r\n" % (len(dest), len(dest)) + dest + b"\r\n")
        assert "Permissions Violation" in "".join(shy.send())
        assert ear.send() == []


def test_a32_mqtt() -> None:
    """identities of MQTT clients | there is no MQTT: its configuration is refused"""
    with pytest.raises(ServerFailed, match="mqtt"):
        Server(recipe("headwater", "mqtt { port: 1883 }")).__enter__()


def test_a33_users_of_certificates(tmp_path: Path) -> None:
    """a user of a certificate logs in by its name alone on another listener | refused: where \
certificates name users, one without a password needs the certificate"""
    pair = certificate(tmp_path)
    leaf = free_port()
    config = f"""
    tls {{ cert_file: "{pair.cert_file}", key_file: "{pair.key_file}",
        ca_file: "{pair.cert_file}", verify_and_map: true }}
    leafnodes {{ listen: "127.0.0.1:{leaf}" }}
    authorization {{ users: [ {{user: "CN=node"}}, {{user: x, password: y}} ] }}
    """
    for name in ("headwater", "nats-server"):
        with Server(recipe(name, config)):
            for fields in ({"user": "CN=node"}, {"user": "CN=node", "pass": ""}, {}):
                with Raw(leaf) as raw:
                    said = raw.login(name="edge", version="2.11.0", **fields)
                    assert "-ERR 'Authorization Violation'" in said, (name, fields)
            with Raw(leaf) as raw:
                said = raw.login(name="edge", version="2.11.0", user="x", **{"pass": "y"})
                assert not any("-ERR" in line for line in said)
