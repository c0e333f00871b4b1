"""Made-up accounts, users and what they try: data out of a seed, and its configuration.

In subjects `@A` stands for account A as a subject names it: by its name in a configuration, by its
public key in tokens.
"""

import hashlib
import json
import random
import time
from typing import Any

from headwater.security import jwt
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    AccountLimits,
    ActivationBody,
    ActivationClaims,
    DefaultPermissions,
    Export,
    Import,
    OperatorBody,
    OperatorClaims,
    ResponsePermission,
    SigningScope,
    SubjectPermission,
    UserBody,
    UserClaims,
    UserLimits,
)
from headwater.security.nkeys import KeyPair

World = dict[str, Any]
"""`mode` ("conf" or "jwt"), `accounts`, `users`, `no_auth`, and what is tried: `asks` and `holds`
(user, pattern, queue), `pubs` (user, subject, whether an answer is wanted)."""

ACCOUNTS = ("A", "B", "C")
USERS = 4
"""Of each account."""
WORDS = ("a", "b", "c", "l")
QUEUES = ("v1.x", "v2.x", "v1.y", "v2")
QUEUE_RULES = ("v1.*", "v2.>", "v1.x", "*.x", "v2", ">")
RESPONSES = ("single", "stream", "chunked")
TEMPLATES = (
    "{{name()}}.>",
    "a.{{tag(team)}}.*",
    "{{tag(team)}}.{{tag(zone)}}",
    "b.{{account-name()}}",
    "c.{{account-tag(region)}}.>",
    "{{subject()}}",
    "a.{{ Tag(team) }}",
    "*.{{account-subject()}}",
)
ENDS = 4102444800
"""A time that is far away, in Unix seconds."""


def key(kind: str, name: str) -> KeyPair:
    """The key pair of a name, always the same."""
    return KeyPair(kind, hashlib.sha256(f"{kind}{name}".encode()).digest())


# --- out of a seed ---


def literal(chance: random.Random) -> str:
    """A subject without wildcards."""
    words = [*WORDS, *WORDS, f"@{chance.choice(ACCOUNTS)}", chance.choice(("t1", "t2", "u0", "eu"))]
    return ".".join(chance.choices(words, k=chance.randint(1, 3)))


def pattern(chance: random.Random, *, end: bool = True) -> str:
    """A subject that may have wildcards; `>` only with `end`."""
    tokens = chance.choices([*WORDS, "*", "*"], k=chance.randint(1, 3))
    if end and chance.random() < 0.25:
        tokens = [*tokens[:2], ">"]
    return ".".join(tokens)


def rules(chance: random.Random, queues: bool, templates: bool) -> dict[str, list[str]]:
    """Allowed and denied subjects of one direction."""

    def some() -> list[str]:
        found = []
        for _ in range(chance.randint(1, 3)):
            text = pattern(chance)
            if templates and chance.random() < 0.5:
                text = chance.choice(TEMPLATES)
            if queues and chance.random() < 0.25:
                text += f" {chance.choice(QUEUE_RULES)}"
            found.append(text)
        if chance.random() < 0.3:
            found.append(chance.choice((">", "_INBOX.>", "$SYS.REQ.USER.INFO")))
        return found

    form = chance.randrange(4)
    found = {}
    if form in (0, 2):
        found["allow"] = some()
    if form in (1, 2):
        found["deny"] = some()
    return found


def permissions(chance: random.Random, templates: bool = False) -> dict[str, Any]:
    """What a user may do."""
    found: dict[str, Any] = {}
    if chance.random() < 0.6:
        found["pub"] = rules(chance, False, templates)
    if chance.random() < 0.6:
        found["sub"] = rules(chance, True, templates)
    if chance.random() < 0.3:
        found["resp"] = {"max": chance.choice((1, 2, 5)), "ttl": 60}
    return found


def export(chance: random.Random) -> dict[str, Any]:
    subject = pattern(chance)
    while subject.endswith(">") and subject[0] in "*>":
        # It would take in what users ask of the servers themselves.
        subject = pattern(chance)
    stars = [i + 1 for i, token in enumerate(subject.split(".")) if token == "*"]
    found: dict[str, Any] = {"kind": chance.choice(("stream", "service")), "subject": subject}
    if stars and chance.random() < 0.3:
        found["position"] = chance.choice(stars)
    elif chance.random() < 0.3:
        found["private"] = chance.sample(ACCOUNTS, chance.randint(1, 2))
    if found["kind"] == "service":
        found["response"] = chance.choice(RESPONSES)
    return found


def narrowed(chance: random.Random, importer: str, offer: dict[str, Any], wrong: float) -> str:
    """What an account imports of an export: all of it, or a part; with a chance of `wrong` in
    another account's place."""
    tokens = []
    for place, token in enumerate(offer["subject"].split("."), 1):
        if place == offer.get("position"):
            token = f"@{importer if chance.random() >= wrong else 'B'}"
        elif token == "*" and chance.random() < 0.3:
            token = chance.choice(WORDS)
        elif token == ">" and chance.random() < 0.3:
            token = f"{chance.choice(WORDS)}.{chance.choice(WORDS)}"
        tokens.append(token)
    return ".".join(tokens)


def local_name(chance: random.Random, subject: str) -> str:
    """Another name for what is imported, with all of its wildcards in any order."""
    tokens = subject.split(".")
    stars = [f"${i + 1}" for i in range(tokens.count("*"))]
    chance.shuffle(stars)
    end = [">"] if tokens[-1] == ">" else []
    # nats-server loses their order where only that differs from the subject.
    first = chance.choice([word for word in ("l", "m") if word != tokens[0]])
    return ".".join([first, *stars, *end])


def imports(chance: random.Random, importer: str, world: World) -> list[dict[str, Any]]:
    """What an account takes of those after it; in a configuration only what it may, or no server
    would start. Which import of a circle is refused depends on the order of logins."""
    found: list[dict[str, Any]] = []
    strict = world["mode"] == "conf"
    others = [name for name in ACCOUNTS if name > importer]
    for _ in range(chance.randint(1, 4) if others else 0):
        source = chance.choice(others)
        offer = chance.choice(world["accounts"][source]["exports"])
        shut = importer not in offer.get("private", ACCOUNTS)
        if strict and shut:
            continue
        subject = narrowed(chance, importer, offer, 0.0 if strict else 0.1)
        entry = {"kind": offer["kind"], "account": source, "subject": subject}
        if chance.random() < 0.5:
            entry["to"] = local_name(chance, subject)
        elif entry["kind"] == "stream" and chance.random() < 0.5:
            entry["prefix"] = chance.choice(WORDS)
        tokens = ("good", "missing", "expired", "revoked", "signing")
        entry["token"] = chance.choices(tokens, (6, 1, 1, 1, 2))[0]
        twice = [each for each in found if (each["account"], each["subject"]) == (source, subject)]
        if not (strict and twice):
            found.append(entry)
    return found


def user(chance: random.Random, name: str, account: str, mode: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "account": account}
    if chance.random() < 0.7:
        found["permissions"] = permissions(chance)
    if mode == "conf":
        found["nkey"] = chance.random() < 0.3
    elif chance.random() < 0.5:
        found["scope"] = permissions(chance, templates=True)
        found.pop("permissions", None)
    found["tags"] = [tag for tag in ("team:t1", "team:t2", "zone:b") if chance.random() < 0.5]
    flaws = ("WEBSOCKET", "expired", "revoked", "stranger", "source", "bearer", "unsigned")
    if chance.random() < 0.15:
        found["flaw"] = chance.choice(flaws if mode == "jwt" else flaws[:1])
    return found


def make(seed: int, mode: str) -> World:
    """The world of a seed."""
    chance = random.Random(f"{seed} {mode}")
    accounts: World = {
        name: {"exports": [export(chance) for _ in range(chance.randint(1, 3))]}
        for name in ACCOUNTS
    }
    world: World = {"mode": mode, "accounts": accounts}
    for name in ACCOUNTS:
        accounts[name]["imports"] = imports(chance, name, world)
        if chance.random() < 0.3:
            accounts[name]["default"] = permissions(chance)
    users = [
        user(chance, f"u{n}", account, mode)
        for n, account in enumerate(name for name in ACCOUNTS for _ in range(USERS))
    ]
    names = [each["name"] for each in users]
    world["users"] = users
    world["no_auth"] = chance.choice(["", *names]) if mode == "conf" else ""
    world["asks"] = [
        [
            chance.choice(names),
            pattern(chance) if chance.random() < 0.8 else literal(chance),
            chance.choice(("", "", *QUEUES)),
        ]
        for _ in range(60)
    ]
    # A queue group has one member, so that it is no chance who gets a message.
    world["holds"] = [
        [
            name,
            pattern(chance, end=False),
            f"{chance.choice(QUEUES)}.{name}.{n}" if chance.random() < 0.2 else "",
        ]
        for name in names
        for n in range(4)
    ]
    world["pubs"] = [
        [chance.choice(names), literal(chance), chance.random() < 0.6] for _ in range(90)
    ]
    return world


# --- as a configuration ---


def named(world: World, text: str) -> str:
    """A subject with the accounts' real names in it."""
    for name in ACCOUNTS:
        real = name if world["mode"] == "conf" else key("A", name).public_key
        text = text.replace(f"@{name}", real)
    return text


def config(world: World) -> str:
    """The text of a configuration with all accounts and users of a world."""
    return _conf(world) if world["mode"] == "conf" else _operator(world)


def _conf(world: World) -> str:
    accounts: World = {}
    for name, account in world["accounts"].items():
        made: World = {"users": [], "exports": [], "imports": []}
        for each in world["users"]:
            if each["account"] == name:
                made["users"].append(_conf_user(each))
        for offer in account["exports"]:
            entry = {offer["kind"]: offer["subject"]}
            if "position" in offer:
                entry["account_token_position"] = offer["position"]
            if "private" in offer:
                entry["accounts"] = offer["private"]
            if "response" in offer:
                entry["response_type"] = offer["response"]
            made["exports"].append(entry)
        for item in account["imports"]:
            source = {"account": item["account"], "subject": named(world, item["subject"])}
            entry = {item["kind"]: source}
            entry.update({name: item[name] for name in ("to", "prefix") if name in item})
            made["imports"].append(entry)
        if account.get("default"):
            made["default_permissions"] = _conf_permissions(account["default"])
        accounts[name] = made
    text = f"accounts: {json.dumps(accounts)}\n"
    if world["no_auth"]:
        [wanted] = [each for each in world["users"] if each["name"] == world["no_auth"]] or [None]
        if wanted is not None:
            name = key("U", wanted["name"]).public_key if wanted["nkey"] else wanted["name"]
            text += f"no_auth_user: {name}\n"
    return text


def _conf_user(each: dict[str, Any]) -> World:
    made: World = {"user": each["name"], "password": "p"}
    if each["nkey"]:
        made = {"nkey": key("U", each["name"]).public_key}
    if "permissions" in each:
        made["permissions"] = _conf_permissions(each["permissions"])
    if each.get("flaw") == "WEBSOCKET":
        made["allowed_connection_types"] = ["WEBSOCKET"]
    return made


def _conf_permissions(rights: World) -> World:
    made: World = {}
    if "pub" in rights:
        made["publish"] = rights["pub"]
    if "sub" in rights:
        made["subscribe"] = rights["sub"]
    if "resp" in rights:
        made["allow_responses"] = {"max": rights["resp"]["max"], "expires": "60s"}
    return made


# --- as tokens ---


def _operator(world: World) -> str:
    operator = key("O", "")
    claims = OperatorClaims(
        sub=operator.public_key,
        nats=OperatorBody(system_account=key("A", "S").public_key),
    )
    bodies = {name: _account(world, name) for name in ACCOUNTS}
    bodies["S"] = AccountBody(limits=AccountLimits.unlimited())
    tokens = []
    for name, body in bodies.items():
        own = key("A", name).public_key
        account = AccountClaims(sub=own, name=f"n{name}", nats=body)
        tokens.append(f"  {own}: {jwt.encode(account, operator)}")
    preload = "\n".join(tokens)
    return (
        f"operator: {jwt.encode(claims, operator)}\nresolver: MEMORY\n"
        f"resolver_preload {{\n{preload}\n}}\n"
    )


def _account(world: World, name: str) -> AccountBody:
    account = world["accounts"][name]
    body = AccountBody(limits=AccountLimits.unlimited(), tags=["region:eu", "region:us"])
    body.signing_keys = [key("A", f"{name} signs").public_key]
    for offer in account["exports"]:
        kinds = {"stream": "Stream", "chunked": "Chunked", "single": "Singleton"}
        body.exports.append(
            Export(
                subject=offer["subject"],
                type=offer["kind"],
                token_req="private" in offer,
                account_token_position=offer.get("position", 0),
                response_type=kinds.get(offer.get("response", ""), ""),
                revocations={key("A", "B").public_key: int(time.time()) - 100}
                if "private" in offer
                else {},
            )
        )
    for item in account["imports"]:
        body.imports.append(
            Import(
                account=key("A", item["account"]).public_key,
                subject=named(world, item["subject"]),
                type=item["kind"],
                local_subject=item.get("to", ""),
                to=item.get("prefix", ""),
                token=_activation(world, name, item),
            )
        )
    for each in world["users"]:
        if each["account"] == name and "scope" in each:
            template = _rights(each["scope"], UserLimits.unlimited())
            scope = SigningScope(key=key("A", f"{each['name']} scope").public_key)
            scope.template = template
            body.signing_keys.append(scope)
        if each["account"] == name and each.get("flaw") == "revoked":
            body.revocations[key("U", each["name"]).public_key] = ENDS
    if account.get("default"):
        body.default_permissions = _rights(account["default"], DefaultPermissions())
    return body


def _activation(world: World, importer: str, item: dict[str, Any]) -> str:
    """The token for an import, where its export wants one."""
    wanted = any("private" in offer for offer in world["accounts"][item["account"]]["exports"])
    if not wanted or item["token"] == "missing":
        return ""
    body = ActivationBody(subject=named(world, item["subject"]), kind=item["kind"])
    signer = key("A", item["account"])
    if item["token"] == "signing":
        body.issuer_account = signer.public_key
        signer = key("A", f"{item['account']} signs")
    claims = ActivationClaims(
        sub=key("A", importer).public_key,
        exp=int(time.time()) - 100 if item["token"] == "expired" else 0,
        nats=body,
    )
    issued = int(time.time()) - 200 if item["token"] == "revoked" else None
    return jwt.encode(claims, signer, issued)


def _rights(rights: World, made: Any) -> Any:
    if "pub" in rights:
        made.pub = SubjectPermission(**rights["pub"])
    if "sub" in rights:
        made.sub = SubjectPermission(**rights["sub"])
    if "resp" in rights:
        made.resp = ResponsePermission(
            max=rights["resp"]["max"], ttl=rights["resp"]["ttl"] * 1_000_000_000
        )
    return made


def user_token(each: dict[str, Any]) -> str:
    """A user's token."""
    flaw = each.get("flaw")
    body = UserBody.unlimited()
    signer = key("A", each["account"])
    if "scope" in each:
        body = UserBody(issuer_account=signer.public_key)
        signer = key("A", f"{each['name']} scope")
    elif "permissions" in each:
        body = _rights(each["permissions"], body)
    body.tags = list(each["tags"])
    if flaw == "WEBSOCKET":
        body.allowed_connection_types = ["WEBSOCKET"]
    if flaw == "source":
        body.src = ["10.0.0.0/8"]
    if flaw in ("bearer", "unsigned"):
        body.bearer_token = flaw == "bearer"
    if flaw == "stranger":
        signer = key("A", "nobody")
    claims = UserClaims(
        sub=key("U", each["name"]).public_key,
        name=each["name"],
        nats=body,
        exp=int(time.time()) - 100 if flaw == "expired" else ENDS,
    )
    return jwt.encode(claims, signer)
