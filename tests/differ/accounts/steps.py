"""What clients of made-up accounts do, from a seed: each listens, publishes, asks and answers."""

import json
import random
from dataclasses import dataclass

from tests.differ.accounts.worlds import ACCOUNTS, Part, literal, logins, pattern

STREAM = '{"name":"S%s","subjects":["%s"],"storage":"memory"}'
CONSUMER = '{"stream_name":"S%s","config":{"durable_name":"D","ack_policy":"explicit"}}'


@dataclass(frozen=True)
class Step:
    """One client sends something, or answers what it heard."""

    conn: int
    data: bytes
    which: int = 0
    """Which message with a reply is answered: the last is 1, none is 0. `@` in `data` then stands
    for its reply."""
    slow: bool = False
    """True when the answer comes later than that to a PING."""


class Maker:
    """Makes the steps of some clients."""

    def __init__(self, chance: random.Random, parts: list[Part]) -> None:
        self.chance = chance
        self.users = logins(parts)
        self.number = 0
        self.api = any("$JS.API" in text for _, _, text in parts)

    def steps(self) -> list[Step]:
        """Logins, then everything."""
        chance = self.chance
        found = []
        logged = [*self.users, *(["", "nobody"] if chance.random() < 0.5 else [])]
        for conn, user in enumerate(logged):
            found.append(self.login(conn, user))
        makers = [self.subscribe, self.unsubscribe, self.publish, self.ask, self.answer, self.about]
        weights = [10, 1.5, 8, 8, 8, 0.6]
        for conn in range(len(logged)):
            found += [self.subscribe(conn) for _ in range(chance.randint(2, 5))]
        for _ in range(chance.randint(30, 70)):
            conn = chance.randrange(len(logged))
            if self.api and chance.random() < 0.1:
                found.append(self.manage(conn))
            else:
                found.append(chance.choices(makers, weights)[0](conn))
        return found

    def login(self, conn: int, user: str) -> Step:
        """A CONNECT, and an inbox."""
        first = {"verbose": False, "pedantic": self.chance.random() < 0.1, "headers": True}
        first["no_responders"] = self.chance.random() < 0.6
        if self.chance.random() < 0.1:
            first["echo"] = False
        shown = {**first, **({"user": user, "pass": "p"} if user else {})}
        text = f"CONNECT {json.dumps(shown)}\r\nSUB _INBOX.{conn}.> inbox\r\n"
        return Step(conn, text.encode())

    def subscribe(self, conn: int) -> Step:
        """Now and then as the one member of a queue group, so that it is no chance who gets it."""
        chance = self.chance
        self.number += 1
        subject = chance.choice((pattern(chance, 0.7), pattern(chance, 0.7), literal(chance)))
        if chance.random() < 0.2:
            # As it is called where it was imported to.
            subject = f"{chance.choice(('l', 'm', 'from', 'l.*', 'm.*', 'l.*.*'))}.>"
        elif chance.random() < 0.03:
            subject = chance.choice((">", "*.>", "$JS.API.>", "_R_.>", "$SYS.>"))
        queue = ""
        if chance.random() < 0.25:
            queue = chance.choice((f"q.{self.number}", f"w.{self.number}", f"q.x.{self.number}"))
        return Step(conn, f"SUB {subject} {queue} {self.number}\r\n".encode())

    def unsubscribe(self, conn: int) -> Step:
        """One of its own, or none."""
        sid = self.chance.randint(1, max(1, self.number))
        most = self.chance.choice(("", "", "1", "2"))
        return Step(conn, f"UNSUB {sid} {most}\r\n".encode())

    def subject(self) -> str:
        """Where something is published to."""
        chance = self.chance
        if chance.random() < 0.3:
            return f"{chance.choice(('l', 'm', 'from'))}.{literal(chance, 2)}"
        return literal(chance)

    def publish(self, conn: int) -> Step:
        """With and without headers."""
        self.number += 1
        return Step(conn, self.message(self.subject(), ""))

    def message(self, subject: str, reply: str) -> bytes:
        """A frame."""
        text = f"{self.number}".encode()
        if self.chance.random() < 0.7:
            return f"PUB {subject} {reply} {len(text)}\r\n".encode() + text + b"\r\n"
        block = b"NATS/1.0\r\nA: b\r\n\r\n"
        sizes = f"{len(block)} {len(block) + len(text)}"
        return f"HPUB {subject} {reply} {sizes}\r\n".encode() + block + text + b"\r\n"

    def ask(self, conn: int) -> Step:
        """A request; now and then with a reply that is not its inbox."""
        self.number += 1
        reply = f"_INBOX.{conn}.{self.number}"
        if self.chance.random() < 0.15:
            reply = self.subject()
        return Step(conn, self.message(self.subject(), reply))

    def answer(self, conn: int) -> Step:
        """One or several answers to what was asked."""
        self.number += 1
        reply = self.chance.choice(("", "", "", "", f"_INBOX.{conn}.{self.number}"))
        data = self.message("@", reply) * self.chance.choice((1, 1, 1, 2, 3))
        return Step(conn, data, self.chance.choice((1, 1, 2, 3)))

    def about(self, conn: int) -> Step:
        """What a user learns of itself."""
        return Step(conn, f"PUB $SYS.REQ.USER.INFO _INBOX.{conn}.u 0\r\n\r\n".encode(), 0, True)

    def manage(self, conn: int) -> Step:
        """A request to JetStream, of the own account or of another one."""
        chance = self.chance
        self.number += 1
        prefix = chance.choice(("$JS.API", *(f"JS.{one}.API" for one in ACCOUNTS)))
        name = chance.choice(("1", "2"))
        requests = {
            "INFO": "",
            f"STREAM.CREATE.S{name}": STREAM % (name, pattern(chance, 0.2)),
            f"STREAM.INFO.S{name}": "",
            "STREAM.NAMES": "",
            f"STREAM.DELETE.S{name}": "",
            f"CONSUMER.CREATE.S{name}.D": CONSUMER % name,
            f"CONSUMER.MSG.NEXT.S{name}.D": '{"no_wait":true}',
            f"STREAM.MSG.GET.S{name}": '{"seq":1}',
            f"STREAM.PURGE.S{name}": "",
        }
        subject = chance.choice(list(requests))
        body = requests[subject]
        text = f"PUB {prefix}.{subject} _INBOX.{conn}.{self.number} {len(body)}\r\n{body}\r\n"
        return Step(conn, text.encode(), 0, True)


def steps(seed: int, parts: list[Part]) -> list[Step]:
    """What is done in the world of this seed."""
    return Maker(random.Random(f"steps of accounts {seed}"), parts).steps()
