"""Conversations of the client protocol, made up from a seed: valid, odd and invalid lines.

A conversation is a list of steps, each `[connection, bytes, places to cut]`.
"""

import json
import random
from typing import Any

Step = tuple[int, bytes, list[int]]

PLAIN = ["a", "a.b", "a.b.c", "b", "b.c", "é.x", "foo*", "a.b>", "x.y.z.w"]
WILD = ["*", ">", "a.*", "a.>", "*.b", "*.*", "a.*.c", "b.>"]
ODD = [
    "a..b",
    ".a",
    "a.",
    "..",
    ".",
    ">.a",
    "a.>.b",
    "$SYS.x",
    "_INBOX.x.y",
    "$JS.ACK.x",
    "_R_.a.b",
    "_GR_.a.b.c",
    "$GNR.x",
    "$NRG.V.x",
    "$JS.API.INFO",
    "a\x00b",
    "a\x7f",
    "\xff\xfe",
    "a" * 300,
    ".".join("a" * 40),
    "**",
    "a.**",
    "$SYS.REQ.USER.INFO",
    "$G",
    "a*b.c",
    "*.>",
    ">>",
    "a\x0bb",
    "a\x0cb",
    '"q"',
    "{x}",
    "'a'",
    "$JS.API.>",
    "denied.x",
    "denied",
    "both.x",
    "reply.x",
]
CLEAN = [one for one in ODD if one.isprintable() or "\xff" in one]
QUEUES = ["q", "w", "_sys_", "q.x", "*", ">", "q..", "denied"]
SIDS = ["1", "2", "3", "4", "x", "-1", "01", "sid.long", "99999999999999999999", "é"]
SIZES = [
    "-1",
    "+1",
    "0x5",
    "1e2",
    "",
    "00",
    "5 ",
    "999999999",
    "1001",
    "2147483648",
    "9" * 19,
    "9" * 30,
    "18446744073709551616",
    "a",
    "1.0",
    "1048577",
]
BLOCKS = [
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\nA:b\r\nA: c\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
    b"NATS/1.0\r\n",
    b"NATS/1.0",
    b"\r\n\r\n",
    b"junk",
    b"NATS/2.0\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\n: v\r\n\r\n",
    b"NATS/1.0\r\nA: \xc3\xa9\xff\r\n\r\n",
    b"NATS/1.0\nA: b\n\n",
    b"NATS/1.0\r\nA: b\r\n\r\nB: c\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n",
    b"NATS/1.0\r\n a: b\r\n\r\n",
    b"",
    b"NATS/1.0\r\nNats-Trace-Dest: trace.x\r\n\r\n",
    b"NATS/1.0\r\nNats-Trace-Only: 1\r\n\r\n",
    b"NATS/1.0\r\nNats-Subject: x\r\n\r\n",
    b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n",
]
VALUES: list[Any] = [None, True, False, 0, 1, 2, -1, 1.5, "", "x", "true", [], {}, 2**31, "1"]
CONNECT = [
    "verbose",
    "pedantic",
    "echo",
    "tls_required",
    "headers",
    "no_responders",
    "name",
    "lang",
    "version",
    "protocol",
    "user",
    "pass",
    "auth_token",
    "jwt",
    "nkey",
    "sig",
    "account",
    "new_account",
    "import",
    "export",
    "remote_account",
    "proxy_sig",
    "unknown",
    "Verbose",
    "HEADERS",
]
RAW_CONNECT = [
    "",
    "{",
    "{}",
    "null",
    "[]",
    "1",
    '{"verbose":true}{"verbose":false}',
    '{"verbose":false} x',
    "{'a':1}",
    '{"name":"\\x"}',
    '{"name":"\\u00e9\\ud800"}',
    '{"name":"a\tb"}',
    "  {}  ",
    '{"verbose":false,}',
    '{"headers":true,"no_responders":true,"headers":false}',
    '{"name":"\xff"}',
    '{"a":' * 40 + "1" + "}" * 40,
    '{"protocol":1e0}',
    '{"protocol":9999999999999999999999}',
    '{"protocol":1.0}',
    "true",
    '"x"',
]
WHOLE = [
    "PING",
    "PONG",
    "ping",
    "PiNg",
    "PING x",
    "PONG  ",
    "PINGG",
    "PIN",
    "+OK",
    "-ERR",
    "-ERR 'x'",
    "INFO {}",
    "INFO",
    "MSG a 1 2",
    "HMSG a 1 2 2",
    "RS+ a b",
    "RS- a",
    "LS+ a",
    "LS- a",
    "RMSG $G a 0",
    "LMSG a 0",
    "A+ a",
    "A- a",
    "GET / HTTP/1.1",
    "",
    " ",
    "\t",
    "X",
    "PUBX a 0",
    "PUB\ta\t0",
    "PUB",
    "SUB",
    "UNSUB",
    "HPUB",
    "CONNECT",
    "PUB ",
    "SUB a",
    "SUB  a  1",
    "UNSUB ",
    "P",
    "S",
    "SUB a q 1 x",
    "UNSUB 1 2 3",
    "CONNECTED {}",
    "Z+ a",
    "UNSUBSCRIBE 1",
    "SUBS a 1",
    "PINGPONG",
    'ConnecT {"verbose":false}',
    "\x00",
    "PI\x00NG",
    "SUB\x00a 1",
]
USERS: list[dict[str, Any]] = [
    {"user": "free", "pass": "p"},
    {"user": "bound", "pass": "p"},
    {"user": "other", "pass": "p"},
    {"user": "answers", "pass": "p"},
    {"user": "free", "pass": "wrong"},
    {"user": "nobody", "pass": "p"},
    {"auth_token": "t"},
    {"user": "free"},
    {},
]
LOGINS = [12, 12, 3, 6, 1, 1, 1, 1, 1]


class Maker:
    """Makes the steps of one conversation."""

    def __init__(self, chance: random.Random, users: bool) -> None:
        self.chance = chance
        self.users = users
        self.control = chance.random() < 0.04
        """Control bytes: few conversations have any, for what follows one is not compared."""

    def subject(self, wild: float = 0.1) -> str:
        """Mostly a good one."""
        roll = self.chance.random()
        if roll < 0.12:
            return self.chance.choice(ODD if self.control else CLEAN)
        return self.chance.choice(WILD if roll < 0.12 + wild else PLAIN)

    def gap(self) -> str:
        return self.chance.choice([" "] * 12 + ["  ", "\t", " \t ", "   "])

    def join(self, words: list[str]) -> str:
        verb, *rest = words
        verb = self.chance.choice([verb] * 8 + [verb.lower(), verb.title()])
        line = verb + "".join(self.gap() + word for word in rest)
        return line + self.chance.choice([""] * 15 + [" ", "  ", "\t"])

    def end(self) -> str:
        odd = ["\n", "", "\r\r\n", "\r"] if self.control else ["\n", ""]
        return self.chance.choice(["\r\n"] * 15 + odd)

    def connect(self) -> bytes:
        """A CONNECT, usually without verbose so that answers are short."""
        chance = self.chance
        if chance.random() < 0.06:
            return self.bytes("CONNECT " + chance.choice(RAW_CONNECT) + "\r\n")
        told: dict[str, Any] = {
            "verbose": chance.random() < 0.15,
            "pedantic": chance.random() < 0.2,
            "headers": chance.random() < 0.8,
        }
        if told["headers"] and chance.random() < 0.6:
            told["no_responders"] = True
        if chance.random() < 0.5:
            told["protocol"] = 1
        if chance.random() < 0.15:
            told["echo"] = False
        if self.users:
            told |= chance.choices(USERS, LOGINS)[0]
        for _ in range(chance.choice([0, 0, 0, 0, 1, 2])):
            told[chance.choice(CONNECT)] = chance.choice(VALUES)
        return self.bytes(self.join(["CONNECT", json.dumps(told)]) + "\r\n")

    def bytes(self, text: str) -> bytes:
        """Text as it goes out; what is a byte by itself stays one."""
        return b"".join(c.encode("latin-1" if ord(c) > 0xF0 else "utf-8") for c in text)

    def publish(self) -> bytes:
        """PUB or HPUB, now and then with a size that does not fit."""
        chance = self.chance
        headers = chance.random() < 0.45
        block = chance.choice(BLOCKS) if headers else b""
        payload = bytes(chance.choices(b"xyz ", k=chance.choice([0, 1, 5, 20, 900, 1100])))
        sizes = [str(len(block))] if headers else []
        sizes.append(str(len(block) + len(payload)))
        roll = chance.random()
        if roll < 0.05:
            sizes[chance.randrange(len(sizes))] = chance.choice(SIZES)
        elif roll < 0.09:
            at = chance.randrange(len(sizes))
            sizes[at] = str(int(sizes[at]) + chance.choice([-2, -1, 1, 2]))
        elif roll < 0.1:
            sizes = sizes[1:]
        words = ["HPUB" if headers else "PUB", self.subject()]
        if chance.random() < 0.4:
            words.append(self.subject(0.03))
        if chance.random() < 0.02:
            words.append("more")
        line = self.bytes(self.join([*words, *sizes]) + chance.choice(["\r\n"] * 30 + ["\n"]))
        return line + block + payload + self.bytes(self.end())

    def subscribe(self) -> bytes:
        chance = self.chance
        words = ["SUB", self.subject(0.35)]
        if chance.random() < 0.25:
            words.append(chance.choice(QUEUES))
        if chance.random() < 0.97:
            words.append(chance.choice(SIDS[:5] * 5 + SIDS))
        return self.bytes(self.join(words) + self.end())

    def unsubscribe(self) -> bytes:
        chance = self.chance
        words = ["UNSUB", chance.choice(SIDS[:5] * 5 + SIDS)]
        if chance.random() < 0.5:
            words.append(chance.choice(["0", "1", "2", "3", "5", "-1", "x", "", "1.5", "9" * 25]))
        return self.bytes(self.join(words) + self.end())

    def whole(self) -> bytes:
        chance = self.chance
        roll = chance.random()
        if roll < 0.04:
            return b"SUB " + b"a" * chance.choice([480, 500, 520, 4085, 4100, 9000]) + b" 1\r\n"
        if roll < 0.08 and self.control:
            return bytes(chance.randrange(256) for _ in range(chance.randrange(1, 30))) + b"\r\n"
        word = chance.choice(WHOLE)
        return self.bytes((word if self.control else word.replace("\x00", "")) + self.end())

    def line(self) -> bytes:
        """Any line; now and then with one byte changed, lost or twice."""
        chance = self.chance
        makers = [self.publish, self.subscribe, self.unsubscribe, self.connect, self.whole]
        data = chance.choices(makers, [10, 8, 2, 1, 1.5])[0]()
        if chance.random() < 0.02 and data:
            at = chance.randrange(len(data))
            other = chance.choice([b"", data[at : at + 1] * 2, bytes([chance.randrange(32, 256)])])
            data = data[:at] + other + data[at + 1 :]
        return data

    def step(self, conn: int) -> Step:
        chance = self.chance
        data = b"".join(self.line() for _ in range(chance.choice([1, 1, 1, 2, 3])))
        return conn, data, self.cuts(data)

    def cuts(self, data: bytes) -> list[int]:
        chance = self.chance
        most = chance.choice([0, 0, 0, 1, 1, 2, 3, len(data) if len(data) < 60 else 5])
        return sorted(chance.randrange(len(data)) for _ in range(most)) if data else []


def conversation(seed: int, users: bool) -> list[Step]:
    """The steps of this seed, over up to three connections."""
    chance = random.Random(f"lines {seed}")
    maker = Maker(chance, users)
    connections = chance.choice([1, 2, 2, 3])
    steps: list[Step] = []
    for conn in range(connections):
        if users or chance.random() < 0.9:
            data = maker.connect()
            steps.append((conn, data, maker.cuts(data)))
    steps += [maker.step(chance.randrange(connections)) for _ in range(chance.randrange(3, 16))]
    return steps
