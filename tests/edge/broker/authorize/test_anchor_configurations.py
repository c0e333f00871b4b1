"""nats-server's own configurations of authorization: each user may do the same on both servers."""

import re
from pathlib import Path

import pytest

from bench.servers import Server
from headwater.edge.conf.load import load_text
from headwater.edge.conf.options import Options
from headwater.security.auth_options import UserOptions
from tests.edge.broker.authorize.compared import is_stricter
from tests.operator_realm import SERVERS, Raw, recipe

TEXTS = (Path(__file__).parent / "anchor_configurations.txt").read_text().split("----\n")
HASHED = "foo"
"""What the hashes in them are of."""


def subjects(options: Options) -> list[str]:
    """Subjects that any of the rules could mean, and some that none does."""
    found = {"nobody", "nobody.here", "_INBOX.x"}
    for user in users_of(options):
        rules = user.permissions
        for side in (rules.publish, rules.subscribe) if rules is not None else ():
            for text in (*(side.allow or []), *side.deny) if side is not None else ():
                found |= {text.split()[0], re.sub(r"\*", "x", text.split()[0])}
    return sorted({text.replace(">", "y.z") for text in found} | found)


def users_of(options: Options) -> list[UserOptions]:
    """The users of a configuration, in accounts or not."""
    return [*options.auth.users, *(u for a in options.accounts.values() for u in a.users)]


def decisions(port: int, options: Options) -> dict[str, list[str]]:
    """What each user, a wrong password and nobody are answered."""
    found = {}
    with Raw(port) as nobody:
        found["nobody"] = nobody.login()
    for user in users_of(options):
        password = HASHED if user.password.startswith("$2a$") else user.password
        with Raw(port) as wrong:
            found[f"{user.user}, wrong"] = wrong.login(user=user.user, **{"pass": "wrong"})
        with Raw(port) as client:
            found[user.user] = client.login(user=user.user, **{"pass": password})
            for subject in subjects(options):
                if "*" not in subject and ">" not in subject:
                    line = f"PUB {subject} 0\r\n\r\n"
                    found[f"{user.user} {line}"] = client.send(line)
                for queue in ("", "q"):
                    line = f"SUB {subject} {queue} 1\r\nUNSUB 1\r\n"
                    found[f"{user.user} {line}"] = client.send(line)
    return found


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_each_user_may_do_the_same(text: str) -> None:
    options = load_text(text).options
    assert users_of(options)
    told = []
    for name in SERVERS:
        with Server(recipe(name, text)) as server:
            told.append(decisions(server.port, options))
    ours, theirs = told
    assert ours.keys() == theirs.keys()
    different = {
        what: (ours[what], theirs[what])
        for what in ours
        if ours[what] != theirs[what] and not is_stricter(what, theirs[what])
    }
    assert not different
