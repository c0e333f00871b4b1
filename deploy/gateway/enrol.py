"""A gateway asks its hub for credentials, over the port where leaf nodes join.

The key is made here and never leaves the machine; the token comes from a file or standard input.
Source of the protocol: NATS leaf node protocol (INFO, CONNECT, LS+, LMSG).
"""

import base64
import json
import re
import secrets
import socket
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headwater.edge.facts.reasons import reason
from headwater.hub.enrolment.issue import request
from headwater.security import creds
from headwater.security.gateway_roles import ENROL_INBOX, ENROL_SUBJECT
from headwater.security.jwt import decode_user
from headwater.security.nkeys import KeyPair
from headwater.security.whole_file import make_folder, write_whole

LEAF_PORT = 7422
LINE_MAX = 1 << 16
TIMEOUT_S = 15.0
KEY_FILE = "gateway.nk"
CREDS_FILE = "gateway.creds"


class EnrolmentError(Exception):
    """The hub refuses or cannot be reached; the text says what to do."""


def own_key(folder: Path) -> KeyPair:
    """The gateway's key, made here the first time. Raises SecurityError and OSError."""
    path = folder / KEY_FILE
    make_folder(folder)
    if path.exists():
        return KeyPair.from_seed(path.read_text())
    pair = KeyPair.create("U")
    # The hub gives credentials to one key for a token: this one must not be lost.
    write_whole(path, pair.seed.encode())
    return pair


def enrol(token_text: str, hubs: Sequence[str], folder: Path, ca: str = "") -> Path:
    """Exchange a token for a creds file in `folder`; returns its path.

    Raises EnrolmentError, SecurityError, OSError.
    """
    token, seed = creds.parse(token_text)
    token_pair, pair = KeyPair.from_seed(seed), own_key(folder)
    name = decode_user(token).name
    asked = request(token, token_pair, pair)
    problems = []
    for hub in hubs:
        try:
            with LeafCaller(hub, ca) as caller:
                caller.login(token, token_pair, name)
                subject = f"{ENROL_SUBJECT}.{name}"
                answer = caller.ask(subject, f"{ENROL_INBOX}.{name}.", asked)
        except (OSError, EnrolmentError) as error:
            problems.append(f"{hub}: {reason(error)}")
            continue
        if "jwt" not in answer:
            raise EnrolmentError(f"the hub refuses: {answer.get('error', answer)}")
        if decode_user(answer["jwt"]).sub != pair.public_key:
            raise EnrolmentError("the hub answers for another key")
        path = folder / CREDS_FILE
        creds.write(path, answer["jwt"], pair.seed)
        return path
    raise EnrolmentError("no hub answers: " + "; ".join(problems))


class LeafCaller:
    """One blocking leaf connection, for one question."""

    def __init__(self, url: str, ca: str) -> None:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        self._host = parts.hostname or ""
        self._secure = parts.scheme == "tls" or bool(ca)
        self._ca = ca
        self._until = time.monotonic() + TIMEOUT_S
        address = (self._host, parts.port or LEAF_PORT)
        self._socket: socket.socket = socket.create_connection(address, TIMEOUT_S)
        self._buffer = b""

    def __enter__(self) -> "LeafCaller":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def login(self, token: str, pair: KeyPair, name: str) -> None:
        """Take the hub's INFO, speak TLS if that is wanted, and log in. Raises EnrolmentError."""
        info = self._info()
        if self._secure or info.get("tls_required"):
            if self._buffer:
                raise EnrolmentError("the hub sent more than INFO in clear text")
            context = ssl.create_default_context(cafile=self._ca or None)
            self._socket = context.wrap_socket(self._socket, server_hostname=self._host)
        signature = pair.sign(str(info.get("nonce", "")).encode())
        fields = {
            "jwt": token, "sig": base64.urlsafe_b64encode(signature).decode().rstrip("="),
            "nkey": pair.public_key, "name": f"enrol-{name}", "version": "2.11.0",
            "headers": True, "server_id": secrets.token_hex(16), "cluster": f"enrol-{name}",
        }  # fmt: skip
        self._send(f"CONNECT {json.dumps(fields)}\r\n".encode())

    def ask(self, subject: str, inbox: str, payload: bytes) -> dict[str, Any]:
        """One question. Raises EnrolmentError and OSError."""
        reply = inbox + secrets.token_hex(11)
        head = f"LS+ {reply}\r\nLMSG {subject} {reply} {len(payload)}\r\n"
        self._send(head.encode() + payload + b"\r\n")
        while True:
            line = self._line()
            if line.startswith(b"PING"):
                self._send(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise EnrolmentError(
                    f"the hub says {line[4:].decode('utf-8', 'replace').strip()}: the token may "
                    "have expired, or be of another hub"
                )
            elif line.startswith(b"LMSG "):
                words = line.split()
                body = self._read(int(words[-1]) + 2)[:-2]
                if words[1].decode() == reply:
                    found = json.loads(body)
                    return found if isinstance(found, dict) else {}

    def _info(self) -> dict[str, Any]:
        line = self._line()
        found = re.fullmatch(rb"INFO (\{.*\})\s*", line)
        if found is None:
            raise EnrolmentError("it is no port for leaf nodes")
        info: dict[str, Any] = json.loads(found.group(1))
        return info

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > LINE_MAX:
                raise EnrolmentError("the hub's line does not end")
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _read(self, size: int) -> bytes:
        if size > LINE_MAX:
            raise EnrolmentError("the hub's answer is too long")
        while len(self._buffer) < size:
            self._fill()
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _fill(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise EnrolmentError("the hub does not answer in time: does it enrol gateways?")
        self._socket.settimeout(left)
        data = self._socket.recv(LINE_MAX)
        if not data:
            raise EnrolmentError("the hub closed the connection")
        self._buffer += data
