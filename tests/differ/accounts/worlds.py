"""Accounts with users, permissions, exports, imports and mappings, made up from a seed.

A world is a list of parts, `(account, kind, text)`: what each adds to the configuration. So a part
can be left out.
"""

import json
import random
from typing import Any

from headwater.edge.subjects.tokens import overlap

Part = tuple[str, str, str]

ACCOUNTS = ("A", "B", "C")
WORDS = ("a", "b")
KINDS = ("users", "exports", "imports", "mappings")
QUEUE_RULES = ("q.*", "q.>", "w.*", "*.x", ">", "q.x")
SHARED_API = "$JS.API.>"
PARTS_OF_SUBJECTS = (
    "{{wildcard(%d)}}",
    "{{partition(3,%d)}}",
    "{{SplitFromLeft(%d,1)}}",
    "{{splitFromRight(%d,1)}}",
    "{{SliceFromLeft(%d,2)}}",
    "{{slicefromright(%d,1)}}",
    "{{left(%d,1)}}",
    "{{Right(%d,2)}}",
    "{{split(%d,-)}}",
    "$%d",
)
"""Functions of a destination, for one wildcard each."""


def literal(chance: random.Random, most: int = 3) -> str:
    """A subject without wildcards."""
    words = [*WORDS * 4, "a-b", "A", "B"]
    return ".".join(chance.choices(words, k=chance.choice((1, 2, 2, 2, most))))


def pattern(chance: random.Random, wild: float = 0.35) -> str:
    """A subject that may have wildcards."""
    tokens = [
        "*" if chance.random() < wild else chance.choice(WORDS)
        for _ in range(chance.choice((1, 2, 2, 2, 3)))
    ]
    if chance.random() < wild / 2:
        tokens = [*tokens[:2], ">"]
    return ".".join(tokens)


def numbered(subject: str, chance: random.Random) -> str:
    """Another name for a subject, with its wildcards by number, in any order."""
    tokens = subject.split(".")
    stars = [f"${at + 1}" for at in range(tokens.count("*"))]
    chance.shuffle(stars)
    return ".".join([chance.choice(("l", "m")), *stars, *([">"] if tokens[-1] == ">" else [])])


class Maker:
    """Makes the parts of one world."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.exports: list[tuple[str, str, str, dict[str, Any]]] = []
        """Account, kind, subject, and what else is said of it."""
        self.users: list[str] = []

    def parts(self) -> list[Part]:
        """All of it."""
        chance = self.chance
        found: list[Part] = []
        for account in ACCOUNTS:
            for _ in range(chance.choice((1, 2, 2, 3))):
                found.append((account, "users", self.user()))
            if chance.random() < 0.25:
                rules = json.dumps(self.permissions())
                found.append((account, "default_permissions", rules))
            found += [(account, "mappings", each) for each in self.mappings()]
            found += [(account, "exports", each) for each in self.offers(account)]
        for account in ACCOUNTS:
            found += [(account, "imports", each) for each in self.imports(account)]
        if chance.random() < 0.3:
            found.append(("", "no_auth_user", chance.choice(self.users)))
        return found

    def user(self) -> str:
        """A user, mostly with permissions."""
        name = f"u{len(self.users)}"
        self.users.append(name)
        made: dict[str, Any] = {"user": name, "password": "p"}
        if self.chance.random() < 0.5:
            made["permissions"] = self.permissions()
        return json.dumps(made)

    def permissions(self) -> dict[str, Any]:
        """Allowed and denied subjects, and answers."""
        chance = self.chance
        made: dict[str, Any] = {}
        for way in ("publish", "subscribe"):
            if chance.random() < 0.55:
                made[way] = self.rules(way == "subscribe")
        if chance.random() < 0.35:
            forms: list[Any] = [True, {"max": 1}, {"max": 2, "expires": "1m"}, {"max": -1}]
            made["allow_responses"] = chance.choice(forms)
        return made

    def rules(self, queues: bool) -> Any:
        """One direction."""
        chance = self.chance

        def some(inbox: bool) -> list[str]:
            wild = 0.6 if inbox else 0.3
            found = [pattern(chance, wild) for _ in range(chance.randint(1, 4))]
            if queues and chance.random() < 0.3:
                found.append(f"{pattern(chance)} {chance.choice(QUEUE_RULES)}")
            return found + (["_INBOX.>", "l.>"] if inbox and chance.random() < 0.8 else [])

        form = chance.randrange(4)
        if form == 0:
            return some(True)
        made = {}
        if form != 2:
            made["allow"] = some(True)
        if form != 1:
            made["deny"] = some(False)
        return made

    def offers(self, account: str) -> list[str]:
        """Exports of an account."""
        chance = self.chance
        found = []
        for _ in range(chance.choice((0, 1, 2, 2, 3))):
            kind = chance.choice(("stream", "service", "service"))
            subject = pattern(chance)
            if subject == ">":
                continue
            more: dict[str, Any] = {}
            stars = [at + 1 for at, token in enumerate(subject.split(".")) if token == "*"]
            if stars and chance.random() < 0.2:
                more["account_token_position"] = chance.choice(stars)
            elif chance.random() < 0.2:
                more["accounts"] = chance.sample(ACCOUNTS, 2)
            if kind == "service" and chance.random() < 0.5:
                more["response_type"] = chance.choice(("single", "stream", "chunked", "Singleton"))
            if kind == "service" and chance.random() < 0.1:
                more["response_threshold"] = "1m"
            if kind == "service" and chance.random() < 0.1:
                more["allow_trace"] = True
            self.exports.append((account, kind, subject, more))
            found.append(json.dumps({kind: subject, **more}))
        if chance.random() < 0.3:
            more = {"response_type": "stream"} if chance.random() < 0.5 else {}
            self.exports.append((account, "service", SHARED_API, more))
            found.append(json.dumps({"service": SHARED_API, **more}))
        return found

    def imports(self, account: str) -> list[str]:
        """What an account takes of the others."""
        chance = self.chance
        # Most circles are refused, in an order that is chance.
        offers = [each for each in self.exports if each[0] > account]
        if chance.random() < 0.04:
            offers = [each for each in self.exports if each[0] != account]
        found: dict[str, str] = {}
        for _ in range(chance.choice((1, 2, 3, 4)) if offers else 0):
            other, kind, subject, more = chance.choice(offers)
            if account not in more.get("accounts", ACCOUNTS):
                continue
            wanted = self.narrowed(account, subject, more)
            made: dict[str, Any] = {kind: {"account": other, "subject": wanted}}
            if subject == SHARED_API:
                made["to"] = f"JS.{other}.API.>"
            elif chance.random() < 0.5:
                made["to"] = numbered(wanted, chance)
            elif kind == "stream" and chance.random() < 0.5:
                made["prefix"] = chance.choice(("from", "a", "b.c"))
            if kind == "service" and chance.random() < 0.15:
                made["share"] = True
            elif kind == "stream" and chance.random() < 0.1:
                made["allow_trace"] = True
            found[f"{kind} {wanted}"] = json.dumps(made)
        return list(found.values())

    def narrowed(self, account: str, subject: str, more: dict[str, Any]) -> str:
        """What an account imports of an export: all of it, or a part."""
        chance = self.chance
        if subject == SHARED_API:
            return subject
        tokens = []
        for place, token in enumerate(subject.split("."), 1):
            if place == more.get("account_token_position"):
                token = account
            elif token == "*" and chance.random() < 0.3:
                token = chance.choice(WORDS)
            elif token == ">" and chance.random() < 0.3:
                token = chance.choice(("*", "a", "a.b"))
            tokens.append(token)
        return ".".join(tokens)

    def mappings(self) -> list[str]:
        """Mappings of an account."""
        chance = self.chance
        found = {}
        for _ in range(chance.choice((0, 0, 1, 2, 3))):
            subject = pattern(chance)
            # Which of two that match is chosen is chance in nats-server.
            if any(overlap(subject.encode(), other.encode()) for other in found):
                continue
            stars = subject.split(".").count("*")
            target = [chance.choice((*WORDS, "m", "l"))]
            for at in chance.sample(range(1, stars + 1), stars):
                target.append(chance.choice((*PARTS_OF_SUBJECTS[:2], *PARTS_OF_SUBJECTS)) % at)
            if subject.endswith(">"):
                target.append(">")
            text = ".".join(target)
            weights: list[Any] = [
                text,
                text,
                {"destination": text, "weight": 100},
                [{"destination": text, "weight": "100%"}],
                [{"destination": text, "weight": 0}],
                [{"destination": f"m.{text}", "weight": 0}, {"destination": text, "weight": 100}],
                {"destination": text, "weight": 100, "cluster": "nowhere"},
            ]
            found[subject] = f"{json.dumps(subject)}: {json.dumps(chance.choice(weights))}"
        return list(found.values())


def world(seed: int) -> list[Part]:
    """The parts of this seed."""
    return Maker(random.Random(f"accounts {seed}")).parts()


def config(parts: list[Part]) -> str:
    """The text of a configuration with these parts."""
    lines = ['server_name: NODE\njetstream { store_dir: "{dir}", max_mem: 1G, max_file: 1G }']
    lines.append("accounts {")
    for account in ACCOUNTS:
        lines.append(f"  {account} {{\n    jetstream: enabled")
        for kind in KINDS:
            shown = [text for owner, which, text in parts if (owner, which) == (account, kind)]
            ends = "{}" if kind == "mappings" else "[]"
            lines.append("\n      ".join([f"    {kind}: {ends[0]}", *shown]) + f"\n    {ends[1]}")
        lines += [
            f"    {which}: {text}"
            for owner, which, text in parts
            if owner == account and which not in KINDS
        ]
        lines.append("  }")
    lines.append("}")
    lines += [f"{which}: {text}" for owner, which, text in parts if not owner]
    return "\n".join([*lines, ""])


def logins(parts: list[Part]) -> list[str]:
    """The names of the users."""
    return [json.loads(text)["user"] for _, which, text in parts if which == "users"]
