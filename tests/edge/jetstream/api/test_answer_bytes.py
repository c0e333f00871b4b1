"""Answers of the API and advisories are those of nats-server to the byte, but for names and times:
also what Go escapes, and the order of fields and of metadata."""

import json
import re

import pytest

from bench.servers import Server, anchor, headwater
from tests.operator_realm import Raw

OWN = re.compile(
    rb'\d{4}-\d\d-\d\dT[\d:.]+Z|\bN[A-Z0-9]{55}\b|"_nats.ver":"[\d.]+"|"id":"[A-Za-z0-9]{22}"'
)
TOLD_OF = ("STREAM", "CONSUMER")
EVENTS = 5
"""A stream is made, changed and deleted, a consumer is made and deleted."""
ODD = '<x> & y \u2028 \u2029 \u00e9 " \\ \x7f \t \n'
STREAM = {
    "name": "S", "subjects": ["s.>"], "description": ODD,
    "metadata": {"z": "1<2", "a": "&", "M": "x", "_nats.x": "1", "10": "", "9": ""},
}  # fmt: skip
CONSUMER = {
    "stream_name": "S",
    "config": {
        "name": "C", "filter_subject": "s.>", "description": ODD, "ack_policy": "explicit",
        "metadata": {"z": "1", "a": "2"},
    },
}  # fmt: skip
ASKED: list[tuple[str, object]] = [
    ("$JS.API.STREAM.CREATE.S", STREAM),
    ("$JS.API.STREAM.UPDATE.S", {**STREAM, "metadata": {"b": ">", "a": "<"}}),
    ("$JS.API.STREAM.CREATE.T", {"name": "T", "subjects": ["s.>"]}),
    ("$JS.API.STREAM.CREATE.U", {"name": "U", "subjects": ["<u>.>"], "description": "<" * 5000}),
    ("$JS.API.STREAM.CREATE.V", {"name": "V", "subjects": ["v.>"], "mirror": {"name": "<none>"}}),
    ("$JS.API.STREAM.INFO.S", {"subjects_filter": ">"}),
    ("s.<b>", "<&>"),
    ("$JS.API.STREAM.NAMES", {"subject": "s.>"}),
    ("$JS.API.STREAM.INFO.<none>", {}),
    ("$JS.API.CONSUMER.CREATE.S.C", CONSUMER),
    ("$JS.API.CONSUMER.INFO.S.C", {}),
    ("$JS.API.CONSUMER.LIST.S", {}),
    ("$JS.API.CONSUMER.NAMES.S", {}),
    ("$JS.API.STREAM.MSG.GET.S", {"last_by_subj": "s.<b>"}),
    ("$JS.API.STREAM.MSG.GET.S", {"seq": 9}),
    ("$JS.API.CONSUMER.DELETE.S.C", {}),
    ("$JS.API.STREAM.PURGE.S", {"filter": "s.>"}),
    ("$JS.API.STREAM.DELETE.S", {}),
]


@pytest.fixture(scope="module")
def told() -> list[tuple[list[bytes], list[bytes]]]:
    """Answers and advisories of each server, headwater's first."""
    found = []
    for recipe in (headwater(), anchor()):
        with Server(recipe) as server, Raw(server.port) as client:
            assert client.login() == []
            client.send("".join(f"SUB $JS.EVENT.ADVISORY.{of}.> {of}\r\n" for of in TOLD_OF))
            events: list[bytes] = []
            answers = [answer(client, number, events) for number in range(len(ASKED))]
            while len(events) < EVENTS:
                hear(client, events)
            found.append((answers, sorted(events)))
    return found


def answer(client: Raw, number: int, events: list[bytes]) -> bytes:
    """What comes for a request; events before it are kept."""
    subject, asked = ASKED[number]
    body = json.dumps(asked, ensure_ascii=False).encode()
    head = f"SUB _INBOX.{number} 77\r\nPUB {subject} _INBOX.{number} {len(body)}\r\n"
    client.socket.sendall(head.encode() + body + b"\r\n")
    while True:
        line = hear(client, events)
        if line:
            client.socket.sendall(b"UNSUB 77\r\n")
            return line


def hear(client: Raw, events: list[bytes]) -> bytes:
    """The next answer, without what is each server's own; empty when it is an event."""
    line = b""
    while not line.startswith(b"{"):
        line = client.file.readline()
        assert line
    line = OWN.sub(b"OWN", line)
    if b"advisory" not in line[:90]:
        return line
    events.append(line)
    return b""


@pytest.mark.parametrize("number", range(len(ASKED)))
def test_the_same_answers(told: list[tuple[list[bytes], list[bytes]]], number: int) -> None:
    (ours, _), (theirs, _) = told
    assert ours[number] == theirs[number]


def test_the_same_events(told: list[tuple[list[bytes], list[bytes]]]) -> None:
    (_, ours), (_, theirs) = told
    assert ours == theirs
