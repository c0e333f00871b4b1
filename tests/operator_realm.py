"""Operators, accounts and users by token, and raw connections that log in with them."""

import base64
import contextlib
import json
import time
from collections.abc import Iterable
from typing import Any

from bench.servers import Recipe, program
from headwater.security import jwt
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    AccountLimits,
    OperatorBody,
    OperatorClaims,
    UserBody,
    UserClaims,
)
from headwater.security.nkeys import KeyPair
from tests.dial import dial

TIMEOUT = 5.0
SERVERS = ("headwater", "nats-server")


def recipe(name: str, config: str) -> Recipe:
    """How to start one of both servers with a configuration."""
    command = (program("headwater"), "serve") if name == "headwater" else (program("nats-server"),)
    return Recipe(name, command, config)


class Realm:
    """One operator, the accounts "A", "B" and "S" (the system's), and their users."""

    def __init__(self, *, more: str = "", **operator: Any) -> None:
        self.operator = KeyPair.create("O")
        self.body = OperatorBody(**operator)
        self.keys = {name: KeyPair.create("A") for name in f"ABS{more}"}
        self.bodies = {
            name: AccountBody(limits=AccountLimits.unlimited()) for name in self.keys
        }
        self.expires: dict[str, int] = {}
        self.signer = self.operator
        """Key that signs accounts."""
        self._own_token = ""

    def account(self, name: str) -> str:
        """Public key of an account."""
        return self.keys[name].public_key

    def token(self, name: str, issued_at: int | None = None) -> str:
        """Token of an account."""
        claims = AccountClaims(
            sub=self.account(name),
            name=name,
            nats=self.bodies[name],
            exp=self.expires.get(name, 0),
        )
        return jwt.encode(claims, self.signer, issued_at)

    def config(self, extra: str = "", resolver: str = "MEMORY") -> str:
        """A configuration in operator mode, with all accounts preloaded."""
        if not self._own_token:
            claims = OperatorClaims(sub=self.operator.public_key, nats=self.body)
            self._own_token = jwt.encode(claims, self.operator)
        tokens = "\n".join(f"  {self.account(name)}: {self.token(name)}" for name in self.keys)
        return (
            f"operator: {self._own_token}\nsystem_account: {self.account('S')}\n"
            f"resolver: {resolver}\nresolver_preload {{\n{tokens}\n}}\n{extra}\n"
        )

    def user(
        self,
        name: str = "A",
        signer: KeyPair | None = None,
        exp: int = 0,
        nbf: int = 0,
        **body: Any,
    ) -> "User":
        """A user of an account; `body` are fields of its token."""
        nats = UserBody.unlimited()
        for field, value in body.items():
            setattr(nats, field, value)
        if signer is not None:
            nats.issuer_account = self.account(name)
        pair = KeyPair.create("U")
        claims = UserClaims(sub=pair.public_key, name="u", nats=nats, exp=exp, nbf=nbf)
        return User(pair, jwt.encode(claims, signer or self.keys[name]))


class User:
    """A user's key and token."""

    def __init__(self, pair: KeyPair, token: str) -> None:
        self.pair = pair
        self.token = token

    def fields(self, nonce: str) -> dict[str, str]:
        """What CONNECT carries."""
        signature = base64.urlsafe_b64encode(self.pair.sign(nonce.encode())).decode().rstrip("=")
        return {"jwt": self.token, "sig": signature, "nkey": self.pair.public_key}


class Raw:
    """A connection that speaks the text protocol line by line."""

    def __init__(self, port: int) -> None:
        self.socket = dial(port, TIMEOUT)
        self.file = self.socket.makefile("rb")
        self.info: dict[str, Any] = json.loads(self.file.readline()[5:])

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.file.close()
        self.socket.close()

    def login(self, user: User | None = None, /, **fields: Any) -> list[str]:
        """CONNECT and PING; the lines up to PONG or the end of the connection."""
        options = {"verbose": False, "pedantic": False, "protocol": 0, "headers": True, **fields}
        if user is not None:
            options.update(user.fields(self.info.get("nonce", "")))
        return self.send(f"CONNECT {json.dumps(options)}\r\n")

    def link(self, user: User, **fields: Any) -> list[str]:
        """Log in as a leaf node; the lines up to PONG or the end of the connection."""
        told = {"name": "spoke", "version": "2.11.0", "headers": True, **fields}
        told.update(user.fields(self.info.get("nonce", "")))
        return self.send(f"CONNECT {json.dumps(told)}\r\n")

    def send(self, protocol: str = "") -> list[str]:
        """Send protocol text and a PING; the lines up to PONG or the end."""
        with contextlib.suppress(OSError):
            self.socket.sendall(protocol.encode() + b"PING\r\n")
        return list(self._until(b"PONG\r\n"))

    def rest(self) -> list[str]:
        """What comes until the server ends the connection. Raises TimeoutError if it does not."""
        return list(self._until(None))

    def _until(self, end: bytes | None) -> Iterable[str]:
        while True:
            try:
                line = self.file.readline()
            except ConnectionError:
                return
            if not line or line == end:
                return
            if line == b"PING\r\n":
                with contextlib.suppress(OSError):  # what was said before the end is still read
                    self.socket.sendall(b"PONG\r\n")
                continue
            yield line.decode().strip()

    def request(self, subject: str, body: Any = b"", seconds: float = TIMEOUT) -> Any:
        """A request's answer, decoded from JSON; None when nobody answers."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        inbox = f"_INBOX.{time.time_ns()}"
        head = f"SUB {inbox} 77\r\nPUB {subject} {inbox} {len(payload)}\r\n".encode()
        self.socket.sendall(head + payload + b"\r\n")
        try:
            return self.answer(seconds, inbox)
        finally:
            self.socket.sendall(b"UNSUB 77\r\n")

    def answer(self, seconds: float = TIMEOUT, subject: str = "") -> Any:
        """The next message that comes (on a subject), decoded from JSON; None when none does, and
        the words of an error that comes instead."""
        self.socket.settimeout(seconds)
        try:
            while True:
                line = self.file.readline()
                if not line:
                    return None
                if line.startswith((b"MSG", b"HMSG")):
                    words = line.split()
                    data = self.file.read(int(words[-1]) + 2)[:-2]
                    if line.startswith(b"HMSG"):
                        data = data[int(words[-2]) :]
                    if subject and words[1].decode() != subject:
                        continue  # the answer to a request that was given up
                    return json.loads(data) if data else None
                if line.startswith(b"-ERR"):
                    return line.decode().strip()
        except TimeoutError:
            self.file = self.socket.makefile("rb")  # one that timed out reads nothing more
            return None
        finally:
            self.socket.settimeout(TIMEOUT)
