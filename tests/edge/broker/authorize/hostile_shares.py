"""Exports and imports that mean harm: subjects of the node, names of accounts as tokens, wildcards
and references in any place. Data out of a seed, its configuration or tokens, and what is tried."""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwater.security.claims import AccountBody, AccountLimits, Export, Import
from headwater.security.nkeys import KeyPair
from headwater.security.subjects import is_literal, is_valid_subject
from tests.operator_realm import Raw, Realm

EXPORTED = (
    "$JS.API.>",
    "$JS.API.*.*",
    "$JS.*.API.>",
    "$JS.ACK.>",
    "$JS.ACK.*.*",
    "$SYS.>",
    "$SYS.REQ.*.*",
    "$SYS.REQ.ACCOUNT.*.INFO",
    "_INBOX.>",
    "_INBOX.*",
    "_R_.>",
    "$NRG.*",
    "$LDS.*",
    "*.>",
    "*",
    "*.*",
    "a.*",
    "a.*.*",
    "*.a.*",
    "a.*.>",
    "*.*.*",
    "a.b",
    "$1.*",
    "a.$1",
    "a.*b.*",
)
BROKEN = ("a..b", "a.>.b", ".a", "a.", ">.a", "a b", "a\tb", "", "a.b\r\nPING", "a.\x01")
LOCAL = ("l", "a", "$JS", "$SYS", "_INBOX", "_R_", "API", "ACK")
BAD_REFERENCES = (
    "$0",
    "$4",
    "$9",
    "$-1",
    "$x",
    "$1x",
    "$",
    "{{wildcard(1)}}",
    "{{wildcard(7)}}",
    "{{split(1,-)}}",
    "{{partition(3,1)}}",
    "{{wildcard()}}",
    "{{nothing(1)}}",
    "$99999999999999999999",
    "$\u00b2",
    "$\u0661",
    "$+1",
    "$" + "9" * 5000,
    "{{wildcard(\u0661)}}",
)
WORDS = ("w", "x", "y")
_PLACE = re.compile(r"\$[-+]?[0-9]{1,19}|\{\{wildcard\([0-9]\)\}\}")
_SERVICE_REPLY = re.compile(r"_R_\.\S+")


@dataclass
class Share:
    """One account's offer, and what another one takes of it. `@` is the importer's name."""

    number: int
    kind: str
    exported: str
    position: int
    imported: str
    local: str
    prefix: str

    def is_refused_here(self) -> bool:
        """Whether this server alone refuses it, by rule.

        A subject is to be one. No word of an import with two names may look like a reference, and
        a local name has each wildcard once: nats-server takes others that it cannot turn around. A
        stream of one subject has no local name with wildcards: there the importer then hears all
        that the exporter publishes on that name.
        """
        names = [
            self.exported,
            self.imported,
            self.local or "a",
            self.prefix.removesuffix(".") or "a",
        ]
        if not all(map(is_valid_subject, names)):
            return True
        places = [token for token in self.local.split(".") if _PLACE.fullmatch(token)]
        odd = len(set(places)) < len(places) or any(token[1] in "0-+" for token in places)
        mixed = bool(places) and "*" in self.local.split(".")
        words = [
            *self.prefix.split("."),
            *(self.imported.split(".") if self.local or self.prefix else ()),
        ]
        wider = self.kind == "stream" and is_literal(self.imported) and not is_literal(self.local)
        return odd or mixed or wider or any(map(_PLACE.fullmatch, words))

    def real(self, text: str, importer: str) -> str:
        """A subject with the importer's name in it."""
        return text.replace("@", importer)


def share(chance: random.Random, number: int) -> Share:
    """An offer and an import of it, of which any part may be wrong."""
    kind = chance.choice(("stream", "service"))
    exported = chance.choice(EXPORTED if chance.random() < 0.93 else BROKEN)
    stars = [at for at, token in enumerate(exported.split("."), 1) if token == "*"]
    position = 0
    if chance.random() < 0.5:
        position = (
            chance.choice(stars) if stars and chance.random() < 0.85 else chance.randint(-1, 6)
        )
    imported = _imported(chance, exported, position)
    local = _local(chance, imported) if chance.random() < 0.7 else ""
    prefix = ""
    if kind == "stream" and not local and chance.random() < 0.4:
        prefix = chance.choice((*LOCAL, "l.m", "*", ">", "$1", "l.*", "l.", "l m"))
    return Share(number, kind, exported, position, imported, local, prefix)


def _imported(chance: random.Random, exported: str, position: int) -> str:
    tokens = []
    for place, token in enumerate(exported.split("."), 1):
        if place == position:
            token = "@" if chance.random() < 0.8 else chance.choice(("*", ">", "$1", "w"))
        elif token == "*" and chance.random() < 0.4:
            token = chance.choice((*WORDS, "*", "$1"))
        elif token == ">" and chance.random() < 0.4:
            token = chance.choice(("w", "w.x", "*", "*.>", "*.*"))
        tokens.append(token)
    if chance.random() < 0.05:
        tokens.append(chance.choice((">", "*", "w", "")))
    return ".".join(tokens)


def _local(chance: random.Random, imported: str) -> str:
    """A local name: references in any order, doubled, left out, or of nothing."""
    tokens = imported.split(".")
    count = tokens.count("*")
    references = [f"${place}" for place in range(1, count + 1)]
    chance.shuffle(references)
    if chance.random() < 0.25:
        references = ["*"] * count
    if references and chance.random() < 0.15:
        references[chance.randrange(len(references))] = chance.choice((*BAD_REFERENCES, "$1"))
    if chance.random() < 0.1:
        references = (
            references[1:] if chance.random() < 0.5 else [*references, chance.choice(("*", "$1"))]
        )
    end = [">"] if (tokens[-1] == ">") != (chance.random() < 0.08) else []
    head = [chance.choice(LOCAL)] if chance.random() < 0.9 else []
    if chance.random() < 0.15:
        head.append(chance.choice(LOCAL))
    return ".".join([*head, *references, *end])


def shares(seed: int | str, count: int) -> list[Share]:
    """The shares of a seed."""
    chance = random.Random(f"{seed} shares")
    return [share(chance, number) for number in range(count)]


def accounts(found: list[Share]) -> str:
    """A configuration in which every share has two accounts of its own."""
    made: dict[str, object] = {}
    for each in found:
        importer, exporter = f"I{each.number}", f"X{each.number}"
        offer: dict[str, object] = {each.kind: each.real(each.exported, importer)}
        if each.position:
            offer["account_token_position"] = each.position
        source = {"account": exporter, "subject": each.real(each.imported, importer)}
        entry: dict[str, object] = {each.kind: source}
        if each.local:
            entry["to"] = each.real(each.local, importer)
        if each.prefix:
            entry["prefix"] = each.prefix
        made[exporter] = {"users": [{"user": exporter, "password": "p"}], "exports": [offer]}
        made[importer] = {"users": [{"user": importer, "password": "p"}], "imports": [entry]}
    return f"accounts: {json.dumps(made)}\n"


def realm(found: list[Share]) -> Realm:
    """The same in tokens."""
    made = Realm()
    for each in found:
        importer, exporter = f"I{each.number}", f"X{each.number}"
        for name in (importer, exporter):
            made.keys[name] = KeyPair.create("A")
            made.bodies[name] = AccountBody(limits=AccountLimits.unlimited())
        key = made.account(importer)
        offer = Export(
            subject=each.real(each.exported, key),
            type=each.kind,
            account_token_position=each.position,
        )
        entry = Import(
            account=made.account(exporter),
            subject=each.real(each.imported, key),
            type=each.kind,
            local_subject=each.real(each.local, key),
            to=each.prefix,
        )
        made.bodies[exporter].exports.append(offer)
        made.bodies[importer].imports.append(entry)
    return made


Login = Callable[[Raw, str], list[str]]
Heard = dict[str, list[str]]
"""What came of each thing that was tried."""


def played(port: int, found: list[Share], named: Callable[[str], str], login: Login) -> Heard:
    """What passes between the two accounts of each share; `named` is an account's real name."""
    heard: Heard = {}
    for each in found:
        with Raw(port) as importer, Raw(port) as exporter:
            heard[f"{each} importer"] = login(importer, f"I{each.number}")
            heard[f"{each} exporter"] = login(exporter, f"X{each.number}")
            if heard[f"{each} importer"] or heard[f"{each} exporter"]:
                continue
            ways = (exporter, importer) if each.kind == "stream" else (importer, exporter)
            for what, came in _tried(each, named(f"I{each.number}"), *ways):
                heard[f"{each} {what}"] = came
    return heard


def _tried(
    each: Share, importer: str, sender: Raw, receiver: Raw
) -> Iterator[tuple[str, list[str]]]:
    """Messages of the sender's account that the receiver's hears, and answers to them."""
    there = each.local or (f"{each.prefix}.{each.imported}" if each.prefix else each.imported)
    wanted = [">"] + ([] if each.kind == "service" else ["a.>", "$JS.>", "l.*", "*.w", "*.*.*"])
    for sid, pattern in enumerate(wanted):
        yield f"SUB {pattern}", receiver.send(f"SUB {pattern} {sid}\r\n")
    sender.send("SUB _INBOX.me.* r\r\n")
    subjects = {
        *literals(each.exported, importer),
        *literals(each.imported, importer),
        *literals(there, importer),
    }
    for number, subject in enumerate(sorted(subjects)):
        text = f"p{number}"
        refused = sender.send(f"PUB {subject} _INBOX.me.{number} {len(text)}\r\n{text}\r\n")
        # What servers answer by themselves is compared elsewhere.
        yield f"PUB {subject}", [line for line in refused if line.startswith("-ERR")]
        came = _messages(receiver.send(), "p")
        yield f"{subject} is heard", sorted(_SERVICE_REPLY.sub("_R_", line) for line, _ in came)
        replies = sorted({reply for _, reply in came if reply})
        for reply in replies:
            refused = receiver.send(f"PUB {reply} 2\r\nqq\r\n")
            yield (
                f"{subject} is answered",
                [_SERVICE_REPLY.sub("_R_", line) for line in refused if "-ERR" in line],
            )
        yield f"answers to {subject}", sorted(line for line, _ in _messages(sender.send(), "q"))


def _messages(lines: list[str], first: str) -> list[tuple[str, str]]:
    """Messages that begin with a letter, as told and with their reply."""
    found = []
    for line, text in zip(lines, lines[1:], strict=False):
        words = line.split()
        if words[:1] in (["MSG"], ["HMSG"]) and text.startswith(first) and len(words) >= 4:
            found.append((f"{line}: {text}", words[3] if len(words) > 4 else ""))
    return found


def literals(pattern: str, importer: str) -> list[str]:
    """Subjects that a pattern may stand for, and those next to them."""
    if not pattern or any(char <= " " for char in pattern):
        return []
    found = []
    for chosen in (("w", "x", "y"), ("@", "w", "w"), ("w", "@", "x"), ("*", ">", "$1")):
        words = iter((*chosen, *"nopqrstuv"))
        tokens = [
            next(words)
            if token in ("*", ">") or token[0:1] in ("{",) or re.fullmatch(r"\$\d+", token)
            else token
            for token in pattern.split(".")
        ]
        found.append(".".join(tokens).replace("@", importer))
    return [subject for subject in found if all(subject.split("."))]
