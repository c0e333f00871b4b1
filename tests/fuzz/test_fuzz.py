"""Anything at every door: what comes is refused in words, never by a failure of the node.

A small share runs with the suite, `make fuzz` takes EXAMPLES of each target; what hypothesis
found is kept in `.hypothesis` and tried first the next time.
"""

import asyncio
import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headwater.deploy.compose import services_for
from headwater.edge.broker.websocket.websocket_filter import WebSocketFilter
from headwater.edge.conf.load import load_text
from headwater.edge.conf.problems import ConfigError
from headwater.edge.conf.validate import complete
from headwater.edge.jetstream.model import archive, s2
from headwater.edge.node.node import Node
from headwater.security import jwt
from headwater.security.claims import UserClaims
from headwater.security.errors import JWTError
from headwater.security.nkeys import KeyPair
from tests.operator_realm import Raw

SHARE = int(os.environ.get("FUZZ_EXAMPLES", "25"))
CONFIG = """
listen: "127.0.0.1:-1", server_name: n
leafnodes { listen: "127.0.0.1:-1" }
cluster { name: c, listen: "127.0.0.1:-1" }
websocket { listen: "127.0.0.1:-1", no_tls: true, compression: true }
jetstream { store_dir: "%s", max_file_store: 64MB, max_memory_store: 64MB }
"""
fuzzed = settings(
    max_examples=SHARE,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Failures(logging.Handler):
    """Keeps the records that carry a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note a failure."""
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


class Running:
    """A node on a loop of its own thread, and the failures that it logged."""

    def __init__(self, store: Path) -> None:
        self.failures = Failures()
        self._text = CONFIG % store
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        options = load_text(self._text).options
        complete(options)
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self.node = Node(options, self._loop)
        self.node.services.extend(services_for(options))
        self.node.start()
        await asyncio.sleep(0)
        self._begun.set()
        await self._end.wait()
        await self.node.stop()

    def __enter__(self) -> "Running":
        logging.getLogger("headwater").addHandler(self.failures)
        self._thread.start()
        assert self._begun.wait(20)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
        logging.getLogger("headwater").removeHandler(self.failures)

    def port(self, listener: str) -> int:
        return int(self.node.ports()[listener][0].rpartition(":")[2])

    def say(self, listener: str, data: bytes) -> bytes:
        """What is answered to these bytes, until the node closes or `data`'s end is reached."""
        got = b""
        with socket.create_connection(("127.0.0.1", self.port(listener)), 5) as link:
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


@pytest.mark.parametrize("listener", HELLO)
@fuzzed
@given(TALK, st.booleans())
@example(b"PUB a\r1 4\r\nabcd", True)
@example(b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n", True)
@example(b"LMSG a | 5\r\nhello", True)
@example(b"RMSG $G a + b c d 5\r\nhello", True)
@example(b"PING\r\n" * 5000, False)
def test_lines(node: Running, listener: str, talk: bytes, greeted: bool) -> None:
    node.say(listener, (HELLO[listener] if greeted else b"") + talk + b"\r\n")
    node.check()


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


@fuzzed
@given(st.booleans(), st.binary(max_size=200))
@example(True, b"\xc2\x80\x00\x00\x00\x00")
@example(True, b"\x81\xfe\x00\x7e" + bytes(130))
@example(False, b"GET / HTTP/1.1\r\nHost: \xff\r\nCookie: =;\x00\r\n\r\n")
def test_websockets(node: Running, upgraded: bool, data: bytes) -> None:
    node.say("websocket", (UPGRADE if upgraded else b"") + data)
    node.check()


@fuzzed
@given(st.lists(st.binary(max_size=60), max_size=8), st.booleans())
def test_websocket_frames(reads: list[bytes], compression: bool) -> None:
    frames = WebSocketFilter(compression=compression)
    frames.bound(1000, 1000)
    with contextlib.suppress(ConnectionError):
        for data in reads:
            frames.receive(data)
            while frames.more:
                frames.receive(b"")
    frames.send(b"x")


CONF_WORDS = (
    "port listen host tls { } [ ] : = , ; \" ' $X include # authorization users user pass accounts "
    "jetstream leafnodes remotes url cluster permissions import export 1MB 5s -1 true nats://h "
    "max_payload 99999999999999999999 websocket headwater sealing key_file $2a$"
)
CONF_WORD = st.sampled_from(CONF_WORDS.split())


@fuzzed
@given(st.lists(st.one_of(CONF_WORD, st.text(max_size=6)), max_size=30), st.sampled_from(" \n"))
@example(["{"] * 200, " ")
@example(["port:", "1e400"], " ")
def test_configurations(words: list[str], between: str) -> None:
    with contextlib.suppress(ConfigError):
        load_text(between.join(words))


USER = KeyPair.create("U")
TOKEN = jwt.encode(UserClaims(sub=USER.public_key), KeyPair.create("A"))


@fuzzed
@given(st.integers(0, len(TOKEN) - 1), st.text(max_size=5), st.integers(0, 40))
@example(3, "000", 3)
def test_tokens(at: int, piece: str, cut: int) -> None:
    with contextlib.suppress(JWTError):
        jwt.decode_user(TOKEN[:at] + piece + TOKEN[at + cut :])


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


@fuzzed
@given(st.lists(ENTRIES, max_size=5), st.booleans(), st.binary(max_size=12), st.integers(1, 400))
@example([archive.ArchiveEntry(b"f", 1, 2**64 - 1, b"", b"x"), archive.END], True, b"", 400)
@example([archive.ArchiveEntry(b"f", 1, 1, b"", b"x"), archive.END], True, b"", 3)
@example([], True, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 7)
def test_archives(
    node: Running, entries: list[archive.ArchiveEntry], begun: bool, junk: bytes, size: int
) -> None:
    """Backups that are put back: sound frames of any entries, in pieces of any size."""
    content = archive.MAGIC + archive.packed(STATE) if begun else b""
    content += b"".join(map(archive.packed, entries)) + junk
    data = s2.IDENTIFIER + s2.frames(content)
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


@fuzzed
@given(CALLS, st.dictionaries(FIELDS, EXTREME, max_size=3), st.booleans())
@example("STREAM.CREATE.F", {"max_msgs": 2**63}, True)
@example("STREAM.CREATE.F", {"duplicate_window": 2**64}, True)
@example("STREAM.MSG.GET.F", {"seq": -1}, False)
def test_requests(node: Running, call: str, fields: dict[str, object], based: bool) -> None:
    body = (BASE if based else {}) | fields
    if "CONSUMER" in call:
        body = {"stream_name": "F", "config": fields} if based else dict(fields)
    text = json.dumps(body).encode()
    asked = b"SUB answer 1\r\nPUB $JS.API.%s answer %d\r\n%s\r\n" % (
        call.encode(), len(text), text
    )
    node.say("nats", HELLO["nats"] + asked)
    node.check()
