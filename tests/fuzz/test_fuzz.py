"""Anything at every door: what comes is refused in words, never by a failure of the node.

A share with fixed seeds runs with the suite, in parts that take some seconds each. `make fuzz`
takes EXAMPLES for each part; what it found is kept in `.hypothesis` and tried first the next time.
Every case of the corpora is tried as it is.
"""

import contextlib
import functools
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from headwater.edge.conf.load import load_text
from headwater.edge.conf.problems import ConfigError
from headwater.edge.jetstream.model import archive, s2
from headwater.edge.websocket.websocket_filter import WebSocketFilter
from headwater.hub.enrolment import issue
from headwater.security import jwt
from headwater.security.claims import AccountClaims, UserBody, UserClaims
from headwater.security.errors import JWTError
from headwater.security.gateway_roles import enrolment_scope
from headwater.security.nkeys import KeyPair
from tests.dial import dial
from tests.fuzz.corpus import FOLDER, Case, cases, varied
from tests.operator_realm import Raw
from tests.slow import one_in
from tests.turns import CountedNode

LONG = int(os.environ.get("FUZZ_EXAMPLES", "0"))
"""Examples of each part of a long run; 0 in the suite."""
PARTS = range(2)
CONFIG = """
listen: "127.0.0.1:-1", server_name: n
leafnodes { listen: "127.0.0.1:-1" }
cluster { name: c, listen: "127.0.0.1:-1" }
websocket { listen: "127.0.0.1:-1", no_tls: true, compression: true }
jetstream { store_dir: "%s", max_file_store: 64MB, max_memory_store: 64MB }
"""

def fuzz(part: int, share: int, found: st.SearchStrategy[Case], check: Callable[..., None]) -> None:
    """Give a target cases: `share` of them, the same ones each time, or those of a long run."""

    @settings(
        max_examples=LONG or share,
        deadline=None,
        print_blob=True,
        **({} if LONG else {"database": None}),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(found)
    def run(case: Case) -> None:
        check(**case)

    (run if LONG else seed(part)(run))()


class Failures(logging.Handler):
    """Keeps the records that carry a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a failure."""
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


class Running(CountedNode):
    """A node on a loop of its own thread, and the failures that it logged."""

    def __init__(self, store: Path) -> None:
        super().__init__(CONFIG % store)
        self.failures = Failures()

    def __enter__(self) -> Self:
        logging.getLogger("headwater").addHandler(self.failures)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        logging.getLogger("headwater").removeHandler(self.failures)

    def say(self, listener: str, data: bytes) -> bytes:
        """What is answered to these bytes, until the node closes or `data`'s end is reached."""
        got = b""
        with dial(self.port(listener), 5) as link:
            link.settimeout(5)
            with contextlib.suppress(OSError):
                link.sendall(data)
                link.shutdown(socket.SHUT_WR)
                while part := link.recv(65536):
                    got += part
        return got

    def check(self) -> None:
        """The node still serves, and nothing in it has failed."""
        assert b"PONG" in self.say("nats", b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert not self.failures.found, self.failures.found[-1]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("store")) as running:
        yield running


EXTREME = st.one_of(
    st.sampled_from(
        [0, -1, 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**30,
         1e308, 0.5, True, None, "", "x", "9" * 40, [], {}, "0001-01-01T00:00:00Z", "\r\n", ">"]
    ),
    st.integers(),
    st.text(max_size=8),
)
WORDS = (
    "CONNECT PUB HPUB SUB UNSUB PING PONG INFO LS+ LS- LMSG HMSG RS+ RS- RMSG -ERR +OK a.b > * "
    "$G $JS.API.INFO | + 1 0 5 12 99999999999999999999 -1 {} {\"verbose\":false} NATS/1.0"
)
WORD = st.sampled_from(WORDS.split()).map(str.encode)
LINE = st.lists(st.one_of(WORD, st.binary(max_size=6)), max_size=7).map(b" ".join)
TALK = st.lists(st.one_of(LINE, st.binary(max_size=40)), max_size=12).map(b"\r\n".join)
HELLO = {
    "nats": b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n',
    "leafnodes": b'CONNECT {"name":"x","server_id":"y","headers":true}\r\n',
    "cluster": b'CONNECT {"name":"NX","cluster":"c","headers":true}\r\n'
    b'INFO {"server_id":"NX","server_name":"x","cluster":"c","headers":true}\r\n',
}


PIECE = st.binary(max_size=6).map(lambda data: data.decode("latin-1"))
"""Any bytes, as a corpus writes them."""


def try_lines(node: Running, listener: str, greeted: bool, talk: str) -> None:
    """Lines of a protocol, before or after a login."""
    hello = HELLO[listener] if greeted else b""
    node.say(listener, hello + talk.encode("latin-1") + b"\r\n")
    node.check()


@pytest.mark.parametrize("part", one_in(2, PARTS))
@pytest.mark.parametrize("listener", HELLO)
def test_lines(node: Running, listener: str, part: int) -> None:
    text = TALK.map(lambda talk: talk.decode("latin-1"))
    made = st.fixed_dictionaries({"greeted": st.booleans(), "talk": text})
    known = varied("lines", "talk", PIECE).map(lambda case: {**case, "listener": listener})
    found = st.one_of(made.map(lambda case: {**case, "listener": listener}), known)
    fuzz(part, 250, found, functools.partial(try_lines, node))


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


def try_websockets(node: Running, upgraded: bool, data: str) -> None:
    """Bytes before or after an upgrade."""
    node.say("websocket", (UPGRADE if upgraded else b"") + data.encode("latin-1"))
    node.check()


@pytest.mark.parametrize("part", one_in(2, PARTS))
def test_websockets(node: Running, part: int) -> None:
    text = st.binary(max_size=200).map(lambda data: data.decode("latin-1"))
    made = st.fixed_dictionaries({"upgraded": st.booleans(), "data": text})
    found = st.one_of(made, varied("websockets", "data", PIECE))
    fuzz(part, 500, found, functools.partial(try_websockets, node))


def try_websocket_frames(reads: list[str], compression: bool) -> None:
    """Frames in reads of any size, without a socket."""
    frames = WebSocketFilter(compression=compression)
    frames.bound(1000, 1000)
    with contextlib.suppress(ConnectionError):
        for data in reads:
            frames.receive(data.encode("latin-1"))
            while frames.more:
                frames.receive(b"")
    frames.send(b"x")


@pytest.mark.parametrize("part", one_in(2, PARTS))
def test_websocket_frames(part: int) -> None:
    reads = st.lists(st.binary(max_size=60).map(lambda data: data.decode("latin-1")), max_size=8)
    made = st.fixed_dictionaries({"reads": reads, "compression": st.booleans()})
    fuzz(part, 500, st.one_of(made, varied_reads()), try_websocket_frames)


def varied_reads() -> st.SearchStrategy[Case]:
    """Frames of the corpus with other reads between them."""
    known = st.sampled_from(cases("websocket_frames"))
    return st.builds(
        lambda case, at, data: {
            **case, "reads": [*case["reads"][:at], data, *case["reads"][at:]]
        },
        known,
        st.integers(0, 4),
        PIECE,
    )  # fmt: skip


CONF_WORDS = (
    "port listen host tls { } [ ] : = , ; \" ' $X include # authorization users user pass accounts "
    "jetstream leafnodes remotes url cluster permissions import export 1MB 5s -1 true nats://h "
    "max_payload 99999999999999999999 websocket headwater sealing key_file $2a$"
)
CONF_WORD = st.sampled_from(CONF_WORDS.split())


def try_configurations(text: str) -> None:
    """A configuration is taken, or refused in words."""
    with contextlib.suppress(ConfigError):
        load_text(text)


@pytest.mark.parametrize("part", one_in(2, PARTS))
def test_configurations(part: int) -> None:
    words = st.lists(st.one_of(CONF_WORD, st.text(max_size=6)), max_size=30)
    made = st.builds(str.join, st.sampled_from(" \n"), words).map(lambda text: {"text": text})
    piece = st.one_of(CONF_WORD, st.text(max_size=6))
    fuzz(part, 600, st.one_of(made, varied("configurations", "text", piece)), try_configurations)


USER = KeyPair.create("U")
TOKEN = jwt.encode(UserClaims(sub=USER.public_key), KeyPair.create("A"))


def try_tokens(token: str) -> None:
    """A token is decoded, or refused in words."""
    for decode in (jwt.decode_user, jwt.decode_account, jwt.decode_operator, jwt.decode_activation):
        with contextlib.suppress(JWTError):
            decode(token)


@pytest.mark.parametrize("part", one_in(2, PARTS))
def test_tokens(part: int) -> None:
    made = st.builds(
        lambda at, piece, cut: {"token": TOKEN[:at] + piece + TOKEN[at + cut :]},
        st.integers(0, len(TOKEN) - 1),
        st.text(max_size=5),
        st.integers(0, 40),
    )
    fuzz(part, 600, st.one_of(made, varied("tokens", "token", st.text(max_size=5))), try_tokens)


SIGNER, HELD, OWN = KeyPair.create("A"), KeyPair.create("U"), KeyPair.create("U")
GATEWAYS = AccountClaims(sub=KeyPair.create("A").public_key)
GATEWAYS.nats.signing_keys = [enrolment_scope(SIGNER.public_key)]
ENROLMENT = UserClaims(
    sub=HELD.public_key,
    name="g1",
    exp=2_000_000_000,
    nats=UserBody(issuer_account=GATEWAYS.sub),
)
REQUEST = issue.request(jwt.encode(ENROLMENT, SIGNER), HELD, OWN).decode()
NOW = 1_800_000_000.0


def try_enrolments(payload: str) -> None:
    """A request to be enrolled is refused in words, or it is the sound one."""
    for name in ("g1", "g2", "g1\r\nPING", "*", ""):
        with contextlib.suppress(JWTError):
            granted = issue.judge(payload.encode("latin-1"), name, GATEWAYS, NOW)
            assert (granted.key, granted.name) == (OWN.public_key, "g1")


@pytest.mark.parametrize("part", one_in(2, PARTS))
def test_enrolments(part: int) -> None:
    """Pieces of a sound request in other places, and what is none."""
    assert issue.judge(REQUEST.encode(), "g1", GATEWAYS, NOW).key == OWN.public_key
    made = st.builds(
        lambda at, piece, cut: {"payload": REQUEST[:at] + piece + REQUEST[at + cut :]},
        st.integers(0, len(REQUEST)),
        PIECE,
        st.integers(0, 40),
    )
    fuzz(part, 200, st.one_of(made, varied("enrolments", "payload", PIECE)), try_enrolments)


ENTRY_NAMES = st.sampled_from(
    [b"f", b"state.json", b"consumers/c", b"", b"a..b", b"f\r\nPING", b">"]
)
NUMBERS = st.one_of(st.sampled_from([0, 1, 2, 2**63 - 1, 2**63, 2**64 - 1]), st.integers(0, 9))
BODIES = st.one_of(
    st.sampled_from([b"{}", b"[", b'{"last_seq":18446744073709551615}', b'{"config":{}}', b"null"]),
    st.binary(max_size=30),
)
ENTRIES = st.builds(archive.ArchiveEntry, ENTRY_NAMES, NUMBERS, NUMBERS, BODIES, BODIES)
STATE = archive.ArchiveEntry(b"state.json", 1, 0, b"", b'{"messages":1}')


def try_archives(node: Running, content: str, size: int) -> None:
    """A backup that is put back, in pieces of `size` bytes."""
    data = s2.IDENTIFIER + s2.frames(content.encode("latin-1"))
    with Raw(node.port("nats")) as raw:
        raw.login()
        asked = {"config": {"name": "R", "subjects": ["f"], "storage": "file"}, "state": {}}
        to = raw.request("$JS.API.STREAM.RESTORE.R", asked)["deliver_subject"].encode()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        for piece in (*pieces, b""):
            raw.socket.sendall(b"PUB %s x %d\r\n%s\r\n" % (to, len(piece), piece))
        raw.send()
        raw.request("$JS.API.STREAM.DELETE.R")
    node.check()


@pytest.mark.parametrize("part", one_in(2, range(4)))
def test_archives(node: Running, part: int) -> None:
    """Sound frames of any entries."""
    content = st.builds(
        lambda entries, begun, junk: (
            (archive.MAGIC + archive.packed(STATE) if begun else b"")
            + b"".join(map(archive.packed, entries)) + junk
        ).decode("latin-1"),
        st.lists(ENTRIES, max_size=5), st.booleans(), st.binary(max_size=12),
    )  # fmt: skip
    made = st.fixed_dictionaries({"content": content, "size": st.integers(1, 400)})
    known = varied("archives", "content", PIECE)
    fuzz(part, 50, st.one_of(made, known), functools.partial(try_archives, node))


FIELD_NAMES = (
    "name subjects retention max_consumers max_msgs max_bytes max_age max_msgs_per_subject "
    "max_msg_size storage discard num_replicas duplicate_window mirror sources republish "
    "first_seq placement sealed metadata subject_transform consumer_limits compression "
    "durable_name deliver_policy opt_start_seq opt_start_time ack_policy ack_wait max_deliver "
    "backoff filter_subject filter_subjects replay_policy rate_limit_bps sample_freq max_waiting "
    "max_ack_pending flow_control idle_heartbeat headers_only max_batch max_expires "
    "inactive_threshold batch expires no_wait seq last_by_subj keep filter offset"
)
FIELDS = st.sampled_from(FIELD_NAMES.split())
CALL_NAMES = (
    "STREAM.CREATE.F STREAM.UPDATE.F STREAM.INFO.F STREAM.PURGE.F STREAM.MSG.GET.F "
    "STREAM.MSG.DELETE.F STREAM.NAMES STREAM.LIST STREAM.RESTORE.R STREAM.SNAPSHOT.F "
    "CONSUMER.CREATE.F CONSUMER.CREATE.F.c CONSUMER.DURABLE.CREATE.F.c CONSUMER.MSG.NEXT.F.c "
    "CONSUMER.LIST.F CONSUMER.PAUSE.F.c DIRECT.GET.F ACCOUNT.INFO"
)
CALLS = st.sampled_from(CALL_NAMES.split())
BASE = {"name": "F", "subjects": ["f"], "storage": "memory", "stream_name": "F"}


def try_requests(node: Running, call: str, body: Case) -> None:
    """A request of JetStream's API."""
    text = json.dumps(body).encode()
    asked = b"SUB answer 1\r\nPUB $JS.API.%s answer %d\r\n%s\r\n" % (
        call.encode(), len(text), text
    )
    node.say("nats", HELLO["nats"] + asked)
    node.check()


def body_of(call: str, fields: Case, based: bool) -> Case:
    """A body with some fields, whole but for them or not."""
    if "CONSUMER" in call:
        return {"stream_name": "F", "config": fields} if based else fields
    return (BASE if based else {}) | fields


@pytest.mark.parametrize("part", one_in(2, PARTS))
def test_requests(node: Running, part: int) -> None:
    made = st.builds(
        lambda call, fields, based: {"call": call, "body": body_of(call, fields, based)},
        CALLS,
        st.dictionaries(FIELDS, EXTREME, max_size=3),
        st.booleans(),
    )
    known = st.builds(
        lambda case, fields: {**case, "body": {**case["body"], **fields}},
        st.sampled_from(cases("requests")),
        st.dictionaries(FIELDS, EXTREME, max_size=1),
    )
    fuzz(part, 600, st.one_of(made, known), functools.partial(try_requests, node))


TARGETS: dict[str, Callable[..., None]] = {
    "archives": try_archives,
    "configurations": try_configurations,
    "enrolments": try_enrolments,
    "lines": try_lines,
    "requests": try_requests,
    "tokens": try_tokens,
    "websocket_frames": try_websocket_frames,
    "websockets": try_websockets,
}


@pytest.mark.parametrize("target", TARGETS)
def test_every_case_of_a_corpus(node: Running, target: str) -> None:
    check = TARGETS[target]
    for case in cases(target):
        check(**case) if "node" not in check.__annotations__ else check(node, **case)
    node.check()


def test_corpora_are_those_of_the_targets_and_say_nothing_twice() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == TARGETS.keys()
    for target in TARGETS:
        lines = (FOLDER / f"{target}.jsonl").read_text().splitlines()
        assert lines == sorted(set(lines)), target
