"""The two kinds of keys that sign for gateways, and what tokens that they sign may do.

An account has two scoped signing keys (NATS ADR-14): the *enrolment key* signs tokens that may ask
for one thing, to be enrolled under their own name; the *gateway key* signs what gateways log in
with. A scope is a template that servers fill in with the name in a user's token, so whoever holds
one of these keys can give no more than it says. The enrolment key stays with the operator's keys,
the gateway key is the hub's.
"""

import re

from headwater.security.claims import (
    AccountClaims,
    SigningScope,
    SubjectPermission,
    UserLimits,
)
from headwater.security.errors import JWTError

ENROL = "enrol"
GATEWAY = "gateway"

ENROL_SUBJECT = "$HEADWATER.ENROL"
ENROL_INBOX = "_ENROL"
REPORT_SUBJECT = "$HEADWATER.REPORT"
"""Gateways report here and not to the bucket: what begins with `$KV` stays in its domain."""
REPORT_BUCKET = "HEADWATER_FLEET"
"""KV bucket with the newest report of every gateway."""
ENROLLED_BUCKET = "HEADWATER_ENROLLED"
"""KV bucket in which the hub lists whom it enrolled; gateways cannot write it."""

GATEWAY_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""Small letters only, so that no name is a word of JetStream's own subjects."""

NAME_IN_TEMPLATE = "{{name()}}"
OWN_SUBJECTS = (f"{NAME_IN_TEMPLATE}.>", f"telemetry.{NAME_IN_TEMPLATE}.>")
ANSWERS = ("_INBOX.>", "$JSC.R.*", "$JS.M.*", "$JS.S.*")
"""What a gateway publishes because the hub asked: answers, and deliveries to mirrors there. The
last tokens are secrets of whoever asked, and a gateway may not listen on them."""


def is_gateway_name(name: bytes) -> bool:
    """Whether a token of a subject can be a gateway's name."""
    return name.isascii() and GATEWAY_NAME.fullmatch(name.decode("ascii")) is not None


def gateway_name(name: str) -> str:
    """The name, if it can be a gateway's. Raises JWTError."""
    if not GATEWAY_NAME.fullmatch(name):
        raise JWTError(
            f"{name!r} is no name of a gateway: use small letters, digits, - and _ (63 at most)"
        )
    return name


def enrolment_scope(key: str) -> SigningScope:
    """Tokens of this key may ask to be enrolled, and hear the answer."""
    template = _unlimited(
        publish=[f"{ENROL_SUBJECT}.{NAME_IN_TEMPLATE}"],
        subscribe=[f"{ENROL_INBOX}.{NAME_IN_TEMPLATE}.>"],
    )
    return SigningScope(key=key, role=ENROL, template=template)


def gateway_scope(key: str, subjects: list[str], mirrors: list[str]) -> SigningScope:
    """Tokens of this key may use `subjects` both ways, serve their own JetStream domain, report,
    and follow the hub's streams `mirrors`, each given as DOMAIN:STREAM. Raises JWTError."""
    own = [f"$JS.{NAME_IN_TEMPLATE}.API.>", "$JS.FC.>"]
    asked: list[str] = []
    for mirror in mirrors:
        domain, _, stream = mirror.partition(":")
        if not GATEWAY_NAME.fullmatch(domain.lower()) or not re.fullmatch(r"[\w-]+", stream):
            raise JWTError(f"{mirror!r} is no DOMAIN:STREAM")
        calls = ("STREAM.INFO.{0}", "CONSUMER.CREATE.{0}.>", "CONSUMER.CREATE.{0}",
                 "CONSUMER.INFO.{0}.>", "CONSUMER.DELETE.{0}.>")  # fmt: skip
        asked += [f"$JS.{domain}.API.{call.format(stream)}" for call in calls]
        asked.append(f"$JS.FC.{stream}.>")
    heard = ["$JS.M.*", "$JS.S.*", "$JSC.R.*"] if mirrors else []
    report = f"{REPORT_SUBJECT}.{NAME_IN_TEMPLATE}"
    template = _unlimited(
        publish=[*subjects, *ANSWERS, report, *asked], subscribe=[*subjects, *own, *heard]
    )
    return SigningScope(key=key, role=GATEWAY, template=template)


def key_of_role(account: AccountClaims, role: str) -> str:
    """Newest signing key of an account with that role. Raises JWTError."""
    for scope in reversed(account.nats.signing_keys):
        if isinstance(scope, SigningScope) and scope.role == role:
            return scope.key
    raise JWTError(
        f"account {account.name} has no signing key for {role}; make the account with "
        "`headwater keys account`, or give it one with `headwater keys rotate`"
    )


def _unlimited(publish: list[str], subscribe: list[str]) -> UserLimits:
    template = UserLimits.unlimited()
    template.pub = SubjectPermission(allow=publish)
    template.sub = SubjectPermission(allow=subscribe)
    return template
