"""What a server sends on a connection, cut into frames."""

import json
from dataclasses import dataclass
from typing import Any

OWN_INFO = {
    "server_id",
    "server_name",
    "version",
    "git_commit",
    "go",
    "host",
    "port",
    "client_id",
    "client_ip",
    "nonce",
    "xkey",
}
"""Fields of INFO whose value is a server's own; that they are there is compared."""

DROPPED_INFO = {"git_commit", "headwater"}
"""Fields that differ by intention: a commit, where it is known, and a version of one program."""


@dataclass
class Frame:
    """One frame: its verb, and its words, header block and payload."""

    verb: str
    words: tuple[str, ...] = ()
    header: bytes = b""
    payload: bytes = b""

    @property
    def message(self) -> bool:
        """True for MSG and HMSG."""
        return self.verb in ("MSG", "HMSG")


def frames(data: bytearray) -> list[Frame]:
    """Take all whole frames from the front of `data`."""
    found = []
    while (one := _frame(data)) is not None:
        found.append(one)
    return found


def _frame(data: bytearray) -> Frame | None:
    end = data.find(b"\r\n")
    if end < 0:
        return None
    line = bytes(data[:end]).decode("latin-1")
    verb, _, rest = line.partition(" ")
    if verb not in ("MSG", "HMSG"):
        del data[: end + 2]
        return (
            Frame(verb, (info(rest),)) if verb == "INFO" else Frame(verb, (rest,) if rest else ())
        )
    words = rest.split(" ")
    total = int(words[-1])
    if len(data) < end + 4 + total:
        return None
    cut = int(words[-2]) if verb == "HMSG" else 0
    body = bytes(data[end + 2 : end + 2 + total])
    del data[: end + 4 + total]
    # nats-server leaves two spaces where it gives no reply.
    shown = tuple(word for word in words[: -2 if verb == "HMSG" else -1] if word)
    return Frame(verb, shown, body[:cut], body[cut:])


def info(text: str) -> str:
    """An INFO without the values that are a server's own."""
    told: dict[str, Any] = {k: v for k, v in json.loads(text).items() if k not in DROPPED_INFO}
    return json.dumps({k: "own" if k in OWN_INFO else v for k, v in told.items()}, sort_keys=True)
