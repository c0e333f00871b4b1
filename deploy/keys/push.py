"""Brings account tokens to a running hub, by its system account (`$SYS.REQ.CLAIMS.UPDATE`)."""

import base64
import json
import time
from collections.abc import Sequence
from typing import Any

from headwater.deploy.keys.folder import KeyFolder, KeysError
from headwater.deploy.keys.realm import SYSTEM_ACCOUNT
from headwater.edge.wire.client import Client, NoResponders
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


def push(folder: KeyFolder, accounts: Sequence[str], server: str, tls_ca: str = "") -> list[str]:
    """Tell the hub the tokens of accounts; names of the nodes that took all of them.

    Raises KeysError when a node refuses, WireError when none answers.
    """
    with Client(server, login_as(folder, SYSTEM_ACCOUNT, tls_ca)) as client:
        taken: dict[str, int] = {}
        for name in accounts:
            _, token = folder.account(name)
            try:
                first = client.request("$SYS.REQ.CLAIMS.UPDATE", token.encode())
            except NoResponders as error:
                raise KeysError(
                    "the hub takes no account tokens: it has to run with an operator"
                ) from error
            node = _took(json.loads(first.payload))
            taken[node] = taken.get(node, 0) + 1
    return sorted(taken)


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
