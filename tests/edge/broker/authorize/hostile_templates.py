"""Scoped users whose names, tags and account names mean harm, and what each of them may do then."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.security import jwt
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    AccountLimits,
    OperatorBody,
    OperatorClaims,
    SigningScope,
    SubjectPermission,
    UserBody,
    UserClaims,
    UserLimits,
)
from headwater.security.nkeys import KeyPair
from tests.edge.broker.authorize.worlds import key
from tests.operator_realm import Raw, User

VALUES = (
    "a", "", " ", " a", "a ", "a b", "a q", ".", "..", "a.b", ".a", "a.", "*", ">", "a.>", "a.*",
    ">.a", "a*", "a>", "\0", "a\0", "a\tb", "a\r\nPING", "a\vb", "\x7f", "a\x1fb", "a\x1cb",
    "\x85", "a\x85", "\x85a", "a\x85b", "a\xa0", "\xa0a", "a\xa0b", "\u2003", "a\u3000",
    "a\u2003b", "a\u2028b", "\u200b", "\xe9", "{{", "}}", "a}}", "{{a", "{{name()}}",
    "{{tag(x)}}", "{{account-name()}}", "{{subject()}}", "{{nope()}}", "$SYS", "_R_",
)  # fmt: skip
"""Of a name or a tag."""
LONG = ("a." * 600 + "a", "a" * 3000, "a" * (64 << 10))
ACCOUNTS = ("n", "", "a b", "a.b", "*", ">", "a.>", "\0", "a\r\nPING", "a\xa0b", "{{name()}}",
            "{{tag(x)}}", "{{account-name()}}")  # fmt: skip
TEMPLATES = (
    "{{name()}}", "in.{{name()}}", "{{name()}}.>", "in.{{name()}}.z", "in{{name()}}",
    "in.{{name()}}z", "in.{{ name() }}", "in.{{NAME()}}", "in.{{name()}}.{{name()}}",
    "{{tag(x)}}", "in.{{tag(x)}}", "{{tag(x)}}.{{tag(x)}}", "in.{{tag( x)}}", "in.{{tag(X)}}",
    "in.{{tag(x.y)}}", "in.{{tag()}}", "{{name()}}.{{tag(x)}}", "{{tag(x)}}.{{name()}}",
    "in.{{tag(x)}}{{name()}}", "in.{{tag({{name()}})}}", "in.{{account-name()}}",
    "{{account-name()}}.{{tag(x)}}", "{{account-name()}}.{{name()}}",
    "{{name()}}.{{account-name()}}", "in.{{account-tag(x)}}", "in.{{subject()}}",
    "{{subject()}}.{{name()}}", "in.{{nope()}}", "in.{{name()}} q", "in.{{", "in.}}{{",
)  # fmt: skip
FORMS = ("allow", "allow more", "publish", "deny", "deny of all")
PROBES = (
    "a", "b", "n", "t", "x", "ok", "other", "in", "in.a", "in.b", "in.n", "in.t", "in.q",
    "in.other", "ina", "in.az", "in.a.b", "in.a.z", "in.a.a", "a.a", "a.b", "n.n", "n.t", "t.n",
    "t.t", "t.u", "u.t", "in.n.n", "a.other", "in.tn", "$SYS.x", "in.{{name()}}", "{{name()}}",
    "{{tag(x)}}", "in.{{tag(x)}}", "in.{{", "q", "n.a", "a.n", "t.a", "a.t", "in.a.b.c",
    "other.deeper", "in.{{nope()}}", "{{account-name()}}", "in.}}{{", "in.{{tag(x.y)}}",
    "{{name()}}.n",
)  # fmt: skip
"""Subjects that are subscribed to, and published to."""
ODD = (
    "a\x85",
    "in.a\x85",
    "ina\xa0",
    "in.a\xa0",
    "a\xa0.x",
    "in.\xa0a",
    "in.\xe9",
    "in.\x85.z",
)
"""Subjects that are published to only."""
PUBLISHED = "".join(f"PUB {subject} 0\r\n\r\n" for subject in (*PROBES, *ODD))
WIDE = ("*", ">", "in.*", "in.>", "*.*", "a.>", "a.*")
"""What is subscribed to besides, for whatever of it is delivered."""
USER = key("U", "hostile")
Decided = frozenset[str]
"""What a user is let do: "in", "SUB x", "PUB x", and "MSG x" that came of a wide subscription."""

_REFUSED = re.compile(r'Permissions Violation for Subscription to "(.*?)"')


@dataclass(frozen=True)
class Case:
    """One user of an account, under one template."""

    account: int
    template: int
    form: str
    name: str
    tags: tuple[str, ...]

    def __str__(self) -> str:
        rule = f"{self.form} {TEMPLATES[self.template]!r}"
        return (
            f"{rule} name {self.name[:30]!r} tags {[tag[:30] for tag in self.tags]} "
            f"account {ACCOUNTS[self.account]!r}"
        )

    def is_odd(self) -> bool:
        """Whether something about it has a control byte, or a space beyond ASCII."""
        text = "".join((self.name, *self.tags, ACCOUNTS[self.account]))
        return any(
            ord(each) < 32 or each == "\x7f" or (each != " " and each.isspace()) for each in text
        )

    def token(self) -> str:
        """The user's token."""
        body = UserBody(issuer_account=key("A", f"{self.account}").public_key)
        body.tags = list(self.tags)
        claims = UserClaims(sub=USER.public_key, name=self.name, nats=body)
        return jwt.encode(claims, _signer(self.account, self.template, self.form))


def cases() -> Iterator[Case]:
    """Each template with each value where it stands for something."""
    for form in FORMS:
        for number, template in enumerate(TEMPLATES):
            for value in (*VALUES, *LONG):
                yield Case(0, number, form, value, ("x:t", "x:u"))
                if "tag(" in template and "account" not in template:
                    yield Case(0, number, form, "n", (f"x:{value}",))
                    yield Case(0, number, form, "n", ("x:t", f"x:{value}", f" x:{value}"))
                    yield Case(0, number, form, "x", (f"X:{value}", f"x.y:{value}", f":{value}"))
            if "account" in template:
                for account in range(1, len(ACCOUNTS)):
                    yield Case(account, number, form, "n", ("x:t",))


def configuration() -> str:
    """All accounts, each with a key for every template in every form."""
    operator = key("O", "")
    own = OperatorClaims(
        sub=operator.public_key, nats=OperatorBody(system_account=key("A", "S").public_key)
    )
    tokens = [(key("A", "S").public_key, "S", AccountBody(limits=AccountLimits.unlimited()))]
    for number, name in enumerate(ACCOUNTS):
        tags = ["x:t", "x:*", "x:a b", f"x:{name}"]
        body = AccountBody(limits=AccountLimits.unlimited(), tags=tags)
        for at, template in enumerate(TEMPLATES):
            for form in FORMS:
                signer = _signer(number, at, form).public_key
                scope = SigningScope(key=signer, template=_limits(form, template))
                body.signing_keys.append(scope)
        tokens.append((key("A", f"{number}").public_key, name, body))
    preload = "\n".join(
        f"  {sub}: {jwt.encode(AccountClaims(sub=sub, name=name, nats=body), operator)}"
        for sub, name, body in tokens
    )
    return (
        f"operator: {jwt.encode(own, operator)}\nresolver: MEMORY\nmax_control_line: 1MB\n"
        f"resolver_preload {{\n{preload}\n}}\n"
    )


def _limits(form: str, rule: str) -> UserLimits:
    """A template that has a rule on both sides, or on that of publishing alone."""
    limits = UserLimits.unlimited()
    if form.startswith("deny"):
        rules = SubjectPermission(allow=[">"] if form == "deny of all" else [], deny=[rule])
    else:
        rules = SubjectPermission(allow=[rule, "ok"] if form == "allow more" else [rule])
    limits.pub = rules
    if form != "publish":
        limits.sub = rules
    return limits


def decided(port: int, wanted: list[Case]) -> list[Decided]:
    """What a server lets the users of cases do."""
    owners = {}
    with contextlib.ExitStack() as stack:
        for account in {case.account for case in wanted}:
            owner = owners[account] = stack.enter_context(Raw(port))
            pair = key("U", "owner")
            claims = UserClaims(sub=pair.public_key, name="owner", nats=UserBody.unlimited())
            token = jwt.encode(claims, key("A", f"{account}"))
            assert owner.login(User(pair, token), echo=False) == []
            assert owner.send("SUB > 1\r\n") == []
        return [_decided(port, case, owners[case.account]) for case in wanted]


def _decided(port: int, case: Case, owner: Raw) -> Decided:
    with Raw(port) as raw:
        if not _admitted(raw, case):
            return frozenset()
        frames = [f"SUB {subject} 1{at}\r\nUNSUB 1{at}\r\n" for at, subject in enumerate(PROBES)]
        frames += [f"SUB {subject} 2{at}\r\n" for at, subject in enumerate(WIDE)]
        errors = "".join(raw.send("".join(frames)))
        refused = set(_REFUSED.findall(errors))
        may = {f"SUB {subject}" for subject in (*PROBES, *WIDE) if subject not in refused}
        owner.send(PUBLISHED)
        may.update(f"MSG {subject}" for subject in _heard(raw))
        raw.send(PUBLISHED)
        may.update(f"PUB {subject}" for subject in _heard(owner))
        return frozenset({"in", *may})


def _admitted(raw: Raw, case: Case) -> bool:
    """Whether a user logs in; a server may also hang up on what is too long."""
    return raw.login(User(USER, case.token())) == [] and raw.send() == []


def _heard(raw: Raw) -> set[str]:
    return {line.split(" ")[1] for line in raw.send() if line.startswith("MSG ")}


def _signer(account: int, template: int, form: str) -> KeyPair:
    return key("A", f"{account} {template} {form}")
