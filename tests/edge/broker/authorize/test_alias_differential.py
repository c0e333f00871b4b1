"""The API of JetStream by its own name, by its domain's, and through imports, under made-up rules:
both servers answer, refuse and ignore the same requests."""

import itertools
import json
import os
import random
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bench.servers import Server
from tests.operator_realm import SERVERS, Raw, recipe
from tests.slow import one_in

SEEDS = random.Random(os.environ.get("HEADWATER_SEED", "aliases")).sample(range(10**6), 2)
USERS = 3
"""Of each account."""
CALLS = (
    "INFO",
    "STREAM.NAMES",
    "STREAM.INFO.V",
    "STREAM.MSG.GET.V",
    "CONSUMER.NAMES.V",
    "DIRECT.GET.V",
    "STREAM.PURGE.V",
)
OWN = ("$JS.API", "$JS.hub.API", "$JS.other.API", "$JS.hub.hub.API", "$JS.API.API", "$JS.hub")
TAKEN = ("$JS.API", "$JS.hub.API", "$JS.theirs.API", "js", "$JS")
RULES = (
    "$JS.API.>",
    "$JS.hub.API.>",
    "$JS.*.API.>",
    "$JS.>",
    "$JS.API.STREAM.*.V",
    "$JS.hub.API.STREAM.*.V",
    "$JS.*.API.STREAM.PURGE.>",
    "$JS.API.STREAM.>",
    "$JS.theirs.API.>",
    "$JS.theirs.API.STREAM.>",
    "js.>",
    "js.STREAM.INFO.*",
    "$JS.hub.>",
    "$JS.API.*",
    "$JS.API.DIRECT.>",
)
PREFIXES = (*OWN, *TAKEN[2:4])
BODIES = {"STREAM.MSG.GET.V": '{"last_by_subj":"v"}', "DIRECT.GET.V": '{"last_by_subj":"v"}'}
SILENCE_S = 0.05
"""After which the next request is sent. What comes later still counts for its own request."""
LAST_SILENCE_S = 0.3
NOBODY = "nobody"
REFUSED = "io.nats.jetstream.api.v1.system_response 10039"


def configuration(chance: random.Random) -> str:
    """A has JetStream and exports its API; B and C import it, C has JetStream of its own."""
    accounts: dict[str, Any] = {
        "A": {"jetstream": "enabled", "exports": [], "users": _users(chance, "A")},
        "B": {"imports": [], "users": _users(chance, "B")},
        "C": {"jetstream": "enabled", "imports": [], "users": _users(chance, "C")},
    }
    remote = chance.choice(("$JS.API", "$JS.hub.API"))
    accounts["A"]["exports"].append({"service": f"{remote}.>", "response_type": "stream"})
    for name in "BC":
        local = chance.choice(TAKEN if name == "B" else TAKEN[2:4])
        entry = {"service": {"account": "A", "subject": f"{remote}.>"}, "to": f"{local}.>"}
        accounts[name]["imports"].append(entry)
    return f"jetstream {{ store_dir: '{{dir}}', domain: hub }}\naccounts: {json.dumps(accounts)}\n"


def _users(chance: random.Random, account: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"user": f"{account}0", "password": "p"}]
    for number in range(1, USERS):
        rule: dict[str, list[str]] = {"deny": chance.sample(RULES, chance.randint(1, 3))}
        if chance.random() < 0.5:
            rule["allow"] = chance.sample(RULES, chance.randint(1, 3))
        user = {"user": f"{account}{number}", "password": "p", "permissions": {"publish": rule}}
        found.append(user)
    return found


def decided(server: Server) -> dict[str, str]:
    """What comes of each request by each user."""
    found = {}
    with Raw(server.port) as owner:
        assert owner.login(user="A0", **{"pass": "p"}) == []
        config = {"name": "V", "subjects": ["v"], "storage": "memory", "allow_direct": True}
        assert "error" not in owner.request("$JS.API.STREAM.CREATE.V", config)
        for name in (f"{account}{number}" for account in "ABC" for number in range(USERS)):
            with Raw(server.port) as wire:
                assert wire.login(user=name, no_responders=True, **{"pass": "p"}) == []
                assert wire.send("SUB in.* 1\r\n") == []
                assert owner.request("v", b"one")["stream"] == "V"
                answers = _Answers(wire.socket)
                for prefix, call in itertools.product(PREFIXES, CALLS):
                    answers.ask(f"{prefix}.{call}", BODIES.get(call, ""))
                found.update({f"{name} {what}": came for what, came in answers.all().items()})
    return found


class _Answers:
    """What comes of requests that are sent one after the other: an error, nobody, or the kind of
    the answer. What an import takes to where nobody serves gets a status from nats-server alone."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._subjects: dict[str, str] = {}
        self._found: dict[str, str] = {}

    def ask(self, subject: str, body: str) -> None:
        """Send a request, and wait for what comes of it."""
        reply = f"in.{subject.replace('.', '-')}"
        self._subjects[reply] = subject
        self._socket.sendall(f"PUB {subject} {reply} {len(body)}\r\n{body}\r\n".encode())
        while subject not in self._found and self._take(SILENCE_S):
            pass

    def all(self) -> dict[str, str]:
        """What came of each request, in the end."""
        while self._take(LAST_SILENCE_S):
            pass
        return {each: self._found.get(each, NOBODY) for each in self._subjects.values()}

    def _take(self, seconds: float) -> bool:
        """Enter the next frame. False after so many seconds of silence."""
        line = self._line(seconds)
        if line is None:
            return False
        words = line.split()
        if words[0] == b"-ERR":
            self._found[line.decode().split('"')[1]] = line.decode()
        elif words[0] in (b"MSG", b"HMSG"):
            size = int(words[-1]) + 2
            while len(self._buffer) < size:
                self._fill()
            data = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._found[self._subjects[words[1].decode()]] = _kind(data, words[0] == b"HMSG")
        return True

    def _line(self, seconds: float) -> bytes | None:
        while b"\n" not in self._buffer:
            if not select.select([self._socket], [], [], seconds)[0]:
                return None
            self._fill()
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        return line + b"\n"

    def _fill(self) -> None:
        chunk = self._socket.recv(1 << 16)
        assert chunk, "the server has ended the connection"
        self._buffer += chunk


def _kind(data: bytes, with_headers: bool) -> str:
    """Of an answer."""
    if with_headers:
        status = data.split(b"\r\n")[0].decode()
        return NOBODY if status == "NATS/1.0 503" else status
    answer = json.loads(data)
    return f"{answer['type']} {answer.get('error', {}).get('err_code', 0)}"


def _told(what: str, ours: str, theirs: str) -> bool:
    """An account without JetStream is told so where nobody serves, too; nats-server is silent there
    where the account imports its domain's name."""
    return " $JS.API.API." in what and (ours, theirs) == (REFUSED, NOBODY)


@pytest.mark.parametrize("seed", one_in(2, SEEDS))
def test_the_same_decisions(seed: int) -> None:
    config = configuration(random.Random(seed))

    def played(name: str) -> dict[str, str]:
        with Server(recipe(name, config)) as server:
            return decided(server)

    with ThreadPoolExecutor(len(SERVERS)) as pool:
        ours, theirs = pool.map(played, SERVERS)
    different = [
        f"{what}: {ours[what]!r}, nats-server {theirs[what]!r}"
        for what in ours
        if ours[what] != theirs[what] and not _told(what, ours[what], theirs[what])
    ]
    assert not different, "\n".join([config, *different])
    assert len(set(ours.values())) > len(CALLS)
