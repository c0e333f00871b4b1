"""A world played on a running server: each login, question, publish and answer, and who heard."""

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.dial import dial
from tests.edge.broker.authorize.worlds import World, key, named, user_token

TIMEOUT_S = 5.0
ANSWERS = 2
"""That a service gives to each request."""

Decisions = dict[str, list[str]]
"""What came of each thing that was tried."""

_TIMES = re.compile(r'"rtt":\d+')
_SERVICE_REPLY = re.compile(r"_R_\.\S+")


class Wire:
    """A user's connection."""

    def __init__(self, port: int, world: World, each: dict[str, Any] | None) -> None:
        """Log in as a user, or as nobody in particular."""
        self.socket = dial(port, TIMEOUT_S)
        self.reader = self.socket.makefile("rb")
        self.messages: list[tuple[str, str, str, str]] = []
        """Subject, sid, reply and text of each message."""
        info = json.loads(self.reader.readline()[5:])
        options = {"verbose": False, "pedantic": False, "headers": True}
        options.update(credentials(world, each, info.get("nonce", "")))
        self.admitted = self.ask(f"CONNECT {json.dumps(options)}\r\n")

    def ask(self, frames: str = "") -> list[str]:
        """The errors that answer; messages are kept."""
        with contextlib.suppress(OSError):
            self.socket.sendall(f"{frames}PING\r\n".encode())
        return list(self._errors())

    def _errors(self) -> Iterator[str]:
        while True:
            try:
                line = self.reader.readline().decode()
            except ConnectionError:
                line = ""
            if not line or line == "PONG\r\n":
                if not line:
                    yield "the end"
                return
            words = line.split()
            if words[0] == "-ERR":
                yield line.strip()
            elif words[0] in ("MSG", "HMSG"):
                self._keep(words)

    def _keep(self, words: list[str]) -> None:
        size = int(words[-1])
        data = _TIMES.sub('"rtt":1', self.reader.read(size + 2)[:-2].decode())
        reply = words[3] if len(words) > (4 if words[0] == "MSG" else 5) else ""
        self.messages.append((words[1], words[2], reply, data))

    def taken(self) -> list[tuple[str, str, str, str]]:
        """The messages since the last time."""
        found, self.messages = self.messages, []
        return found

    def wait(self) -> str:
        """The text of the next message."""
        while not self.messages:
            words = self.reader.readline().decode().split()
            if words[:1] == ["MSG"] or words[:1] == ["HMSG"]:
                self._keep(words)
            elif not words:
                return "the end"
        return self.messages.pop(0)[3]

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


def credentials(world: World, each: dict[str, Any] | None, nonce: str) -> dict[str, str]:
    """What CONNECT carries for a user."""
    if each is None:
        return {}
    if world["mode"] == "conf" and not each["nkey"]:
        return {"user": each["name"], "pass": "p"}
    pair = key("U", each["name"])
    fields = {"nkey": pair.public_key}
    if each.get("flaw") not in ("bearer", "unsigned"):
        signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).decode().rstrip("=")
        fields["sig"] = signature
    if world["mode"] == "jwt":
        fields["jwt"] = user_token(each)
    return fields


def decisions(port: int, world: World) -> Decisions:
    """What a server decides on everything that a world tries."""
    found: Decisions = {}
    wires: dict[str, Wire] = {}
    try:
        for each in (*world["users"], None):
            name = each["name"] if each else "nobody"
            wire = Wire(port, world, each)
            found[f"{name} logs in"] = wire.admitted
            if wire.admitted:
                wire.close()
            else:
                wires[name] = wire
                found[f"{name} is told"] = [_info(wire, name)]
        _subscribe(world, wires, found)
        _publish(world, wires, found)
        _answer(wires, found)
    finally:
        for wire in wires.values():
            wire.close()
    return found


def _info(wire: Wire, name: str) -> str:
    """What a user learns of itself."""
    inbox = f"_INBOX.{name}"
    errors = wire.ask(f"SUB {inbox} info\r\nPUB $SYS.REQ.USER.INFO {inbox} 0\r\n\r\n")
    if errors:
        text = str(errors)
    else:
        wire.socket.settimeout(2)
        try:
            data = json.loads(wire.wait())["data"]
            data.pop("expires", None)
            for rule in data.get("permissions", {}).values():
                # nats-server tells them in no order.
                rule.update({key: sorted(on) for key, on in rule.items() if isinstance(on, list)})
            text = json.dumps(data, sort_keys=True)
        except TimeoutError:
            text = "nothing"
        wire.socket.settimeout(TIMEOUT_S)
    wire.ask("UNSUB info\r\n")
    wire.taken()
    return text


def _subscribe(world: World, wires: dict[str, Wire], found: Decisions) -> None:
    for name, pattern, queue in world["asks"]:
        if name in wires:
            line = named(world, f"SUB {pattern} {queue} ask\r\nUNSUB ask\r\n")
            found[f"{name}: SUB {pattern} {queue}"] = wires[name].ask(line)
    for sid, (name, pattern, queue) in enumerate(world["holds"]):
        if name in wires:
            answer = wires[name].ask(f"SUB {pattern} {queue} {sid}\r\n")
            found[f"{name} holds {pattern} {queue}"] = answer


def _publish(world: World, wires: dict[str, Wire], found: Decisions) -> None:
    for number, (name, subject, wanted) in enumerate(world["pubs"]):
        if name not in wires:
            continue
        reply = f"_INBOX.{name}.{number}" if wanted else ""
        text = f"{number}"
        frames = f"PUB {named(world, subject)} {reply} {len(text)}\r\n{text}\r\n"
        if wanted:
            # One that nobody else has; it may be refused.
            found[f"{name} waits for {number}"] = wires[name].ask(f"SUB {reply} r{number}\r\n")
        found[f"{number}: {name} PUB {subject} {reply}"] = wires[name].ask(frames)


def _answer(wires: dict[str, Wire], found: Decisions) -> None:
    """Everybody answers what came with a reply, and then all that came is counted."""
    heard: dict[str, list[tuple[str, str, str, str]]] = {}
    for name, wire in wires.items():
        wire.ask()
        heard[name] = wire.taken()
    for name, wire in wires.items():
        found[f"{name} hears"] = sorted(map(_told, heard[name]))
        for subject, sid, reply, text in sorted(heard[name], key=lambda item: item[3] + item[1]):
            for turn in range(ANSWERS if reply else 0):
                answer = f"{text} by {name} {sid} {turn}"
                frames = f"PUB {reply} {len(answer)}\r\n{answer}\r\n"
                errors = [_SERVICE_REPLY.sub("_R_", error) for error in wire.ask(frames)]
                found[f"{name} answers {text} on {subject} {sid}, {turn}"] = errors
    for name, wire in wires.items():
        wire.ask()
        found[f"{name} hears answers"] = sorted(map(_told, wire.taken()))


def _told(message: tuple[str, str, str, str]) -> str:
    subject, sid, reply, text = message
    return _SERVICE_REPLY.sub("_R_", f"{subject} ({sid}) {reply} : {text}")
