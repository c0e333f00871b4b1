"""Whether INFO asks for a login, as nats-server does: clients without one end where it does."""

import json
import socket

import pytest

from tests.differ.pair import Pair

USERS = "authorization { users: [{user: a, password: a}] }\n"
LOGINS = {
    "nobody": "max_payload: 1000\n",
    "users": USERS,
    "users, and one for whoever has no login": f"{USERS}no_auth_user: a\n",
    "a token": "authorization { token: t }\n",
    "a system account": "accounts { S {} }\nsystem_account: S\n",
    "a system account and another": "accounts { S {}, A {} }\nsystem_account: S\n",
    "an account": "accounts { A {} }\n",
    "accounts, and one for whoever has no login":
        "accounts { A { users: [{user: a, password: a}] } }\nno_auth_user: a\n",
}  # fmt: skip


def told(port: int) -> tuple[bool, bytes]:
    """Whether a login is asked for, and what a client without one hears."""
    with socket.create_connection(("127.0.0.1", port), 5) as conn, conn.makefile("rb") as lines:
        info = json.loads(lines.readline().partition(b" ")[2])
        conn.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        return bool(info.get("auth_required")), lines.readline()


@pytest.mark.parametrize("case", LOGINS)
def test_the_same_is_asked(case: str) -> None:
    with Pair(LOGINS[case]) as pair:
        ours, theirs = (told(port) for port in pair.ports)
    assert ours == theirs
