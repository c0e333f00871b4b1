"""Brings account tokens to a running hub, by its system account (`$SYS.REQ.CLAIMS.UPDATE`)."""

import base64
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.deploy.keys.folder import KeyFolder, KeysError
from headwater.deploy.keys.realm import SYSTEM_ACCOUNT
from headwater.edge.wire.client import Client, NoResponders, TimedOut
from headwater.edge.wire.login import Login
from headwater.security import jwt
from headwater.security.claims import UserBody, UserClaims
from headwater.security.gateway_roles import ENROLLED_BUCKET
from headwater.security.nkeys import KeyPair

LOGIN_S = 300
"""Lifetime of the users that commands make for themselves; they are written nowhere."""


def login_as(folder: KeyFolder, account: str, tls_ca: str = "") -> Login:
    """A user of an account for the next minutes. Raises SecurityError."""
    claims, _ = folder.account(account)
    pair = KeyPair.create("U")
    expires = int(time.time()) + LOGIN_S
    user = UserClaims(
        sub=pair.public_key, name="headwater-keys", exp=expires, nats=UserBody.unlimited()
    )
    token = jwt.encode(user, folder.pair(claims.sub))
    return Login(jwt=token, seed=pair.seed, tls_ca=tls_ca)


class Pushed(NamedTuple):
    """Who took what was pushed."""

    nodes: list[str]
    """Names of the nodes that took all of it."""
    silent: int
    """Nodes of the hub that did not answer; they hear of it when they are back."""

    def text(self) -> str:
        """For people."""
        more = f"; {self.silent} more did not answer: push again when they are back"
        return ", ".join(self.nodes) + (more if self.silent else "")


def push(folder: KeyFolder, accounts: Sequence[str], server: str, tls_ca: str = "") -> Pushed:
    """Tell every node of the hub the tokens of accounts.

    Raises KeysError when a node refuses, WireError when none answers.
    """
    with Client(server, login_as(folder, SYSTEM_ACCOUNT, tls_ca)) as client:
        state = json.loads(client.request("$SYS.REQ.SERVER.PING").payload)
        there = int(state["statsz"].get("active_servers") or 1)
        taken: Counter[str] = Counter()
        for name in accounts:
            _, token = folder.account(name)
            taken.update(_taken(client, token.encode(), there))
    nodes = sorted(node for node, count in taken.items() if count == len(accounts))
    return Pushed(nodes, max(there - len(nodes), 0))


def _taken(client: Client, token: bytes, there: int) -> set[str]:
    """Names of the nodes that took a token; waits for as many as there are."""
    nodes: set[str] = set()
    try:
        for answer in client.answers("$SYS.REQ.CLAIMS.UPDATE", token):
            nodes.add(_took(json.loads(answer.payload)))
            if len(nodes) >= there:
                break
    except NoResponders as error:
        raise KeysError(
            "the hub takes no account tokens: it has to run with an operator"
        ) from error
    except TimedOut:
        if not nodes:
            raise
    return nodes


def _took(answer: dict[str, Any]) -> str:
    if "error" in answer:
        raise KeysError(f"the hub refuses: {answer['error'].get('description', answer['error'])}")
    return str(answer.get("server", {}).get("name", ""))


def enrolled_keys(
    folder: KeyFolder, account: str, name: str, server: str, tls_ca: str = ""
) -> list[str]:
    """Keys under which a gateway was ever enrolled, as the hub remembers them. Raises WireError."""
    stream = f"KV_{ENROLLED_BUCKET}"
    found = []
    with Client(server, login_as(folder, account, tls_ca)) as client:
        filtered = {"subjects_filter": f"$KV.{ENROLLED_BUCKET}.{name}.>"}
        info = client.api(f"STREAM.INFO.{stream}", **filtered)
        for subject in info["state"].get("subjects") or {}:
            got = client.api(f"STREAM.MSG.GET.{stream}", last_by_subj=subject)
            found.append(json.loads(base64.b64decode(got["message"]["data"]))["key"])
    return found
