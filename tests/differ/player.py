"""Plays a history on both servers at once, step for step, and compares what comes of each step."""

import asyncio
import base64
import contextlib
import itertools
import json
import re
from typing import Any

from tests.differ.frames import Frame, frames
from tests.differ.histories import Step, api

QUIET_S = 0.04
"""So long both servers must say nothing, before a step counts as done."""

LATE_S = 1.5
"""So long one may take for what the other has said."""

AGED_S = 0.3
AGAIN = 8
"""nats-server may end a message so much later than when it is old enough: two seconds, while what
it found too old is not gone; so often who asked is asked again."""

AGES = re.compile(r'"max_age": [1-9]|TTL|_ttl": ([1-9]|true)|"name": "%M"')
"""What a history has in it whose messages end by themselves."""

ORIGINS = re.compile(r"(Nats-Stream-Source: .* )\S+")
MADE_UP = re.compile(r"^[A-Za-z0-9]{8}$|'name': '[A-Za-z0-9]{8}'")
"""The name of a consumer that a client gave none, alone or in what is told of it."""

EXPIRES = re.compile(r'"expires": ?(\d+)')
AROUND_S = 0.06
"""So close to the end of a request nothing is done: whether it is over is chance then."""

LATE = re.compile("(consumer_(delete|reset)|stream_(msg_)?delete)_response")

COUNTS = ("errors", "total")
"""What an account counts of the API's requests."""

HELD = api("STREAM.INFO.%", {"subjects_filter": ">"})

READS = re.compile(r"\.(INFO|LIST|NAMES|GET)\.")
"""Requests that change nothing."""

OWN = re.compile(
    r"\d{4}-\d\d-\d\dT[0-9:.]+Z|Nats-Time-Stamp: [^\\]+|Nats-Pin-Id: [^\\]+"
    r"|json: cannot unmarshal [^\\]+"
    r"|(?<=Nats-Subject: \$JS\.ACK\.)\S+"
    r"|(?<=Nats-Consumer-Stalled: )[^\\]+"
    r"|(?<=JS\.SNAPSHOT\.RESTORE\.)[^\"]+"
    r"|\"name\": \"[A-Za-z0-9]{8}\""
    r"|\"(active|lag|pause_remaining|id|pinned_client_id)\": ?[^,}]+"
)
"""Moments and identities, which no two servers share."""

_numbers = itertools.count(1)


class Side:
    """One server's connection of one history."""

    def __init__(self, name: str, login: str) -> None:
        self.name = name
        self.login = login
        self.seen: list[Frame] = []
        self.deliveries: list[str] = []
        """Reply subjects of what consumers delivered, in order."""
        self.before: dict[str, int] = {}
        """What the account counted of the API's requests before this history: all, and refused
        ones. Some of those were refused by intention, but that ended their history."""
        self.heard = asyncio.Event()

    async def open(self, port: int) -> None:
        """Connect, and listen where answers and deliveries go."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        await self.reader.readline()
        options: dict[str, Any] = {"verbose": False, "headers": True, "no_responders": True}
        if self.login:
            options |= {"user": self.login, "pass": "p"}
        subscriptions = ("i.>", "d.C", "d.D", "d.E", "r.>")
        lines = [f"SUB {self.name}{tail} {n}" for n, tail in enumerate(subscriptions)]
        self.send(("\r\n".join([f"CONNECT {json.dumps(options)}", *lines, "PING", ""])).encode())
        self.task = asyncio.create_task(self.listen())

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def listen(self) -> None:
        buffer = bytearray()
        while data := await self.reader.read(1 << 18):
            buffer += data
            for frame in frames(buffer):
                if frame.verb == "PING":
                    self.send(b"PONG\r\n")
                elif frame.verb not in ("PONG", "INFO"):
                    self.seen.append(frame)
                    self.heard.set()

    async def close(self) -> None:
        self.task.cancel()
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def publish(self, subject: str, reply: str, payload: bytes, headers: list[Any]) -> None:
        words = f"{subject} {reply}" if reply else subject
        if not headers:
            self.send(f"PUB {words} {len(payload)}\r\n".encode() + payload + b"\r\n")
            return
        block = "NATS/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in headers) + "\r\n"
        raw = block.encode()
        size = f"{len(raw)} {len(raw) + len(payload)}"
        self.send(f"HPUB {words} {size}\r\n".encode() + raw + payload + b"\r\n")

    def take(self) -> list[str]:
        """What has come, as lines that can be compared; it is forgotten then."""
        lines = self.lines()
        self.deliveries += self._delivered()
        self.seen = []
        return lines

    def lines(self) -> list[str]:
        """What has come and was not taken yet, as lines that can be compared."""
        order: dict[str, list[str]] = {}
        for subject in self._delivered():
            tokens = subject.split(".")
            order.setdefault(MADE_UP.sub("OWN", tokens[3]), []).append(tokens[6])
        came = [f"{name} in order: {' '.join(numbers)}" for name, numbers in order.items()]
        return [self.shown(frame) for frame in self.seen] + sorted(came)

    def _delivered(self) -> list[str]:
        words = [frame.words for frame in self.seen if len(frame.words) > 2]
        return [each[2] for each in words if each[2].startswith("$JS.ACK.")]

    def shown(self, frame: Frame) -> str:
        if not frame.message:
            return f"{frame.verb} {frame.words}"
        words = list(frame.words)
        if len(words) > 2:
            tokens = words[2].split(".")
            if tokens[1:2] == ["ACK"] and len(tokens) == 9:
                tokens[3], tokens[7] = MADE_UP.sub("OWN", tokens[3]), "T"
            elif tokens[1:2] == ["FC"]:
                tokens = tokens[:4]
            words[2] = ".".join(tokens)
        text = body_of(frame.payload, self.before)
        line = f"{frame.verb} {words} {frame.header!r} {text}".replace(self.name, "%")
        # What stands for a field is one, too: rules for differences read answers as JSON.
        return OWN.sub(lambda found: '"T": 0' if found[0].startswith('"') else "T", line)


def body_of(payload: bytes, before: dict[str, int]) -> str:
    """A payload; a JSON object without what differs by intention, its keys in order. Counts of the
    API are since `before`."""
    if not payload.startswith(b"{"):
        return repr(payload)
    try:
        found = json.loads(payload)
    except ValueError:
        return repr(payload)
    counts = found.get("api") or {}
    counts.update({key: counts[key] - before.get(key, 0) for key in COUNTS if key in counts})
    return json.dumps(pruned(found), sort_keys=True)


def pruned(value: Any) -> Any:
    """Without fields that are Headwater's own, or say which server it was."""
    if isinstance(value, list):
        return [pruned(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("err_code") == 10025:
        return {**value, "description": "invalid JSON"}
    if value.get("err_code") == 10069:
        # Its map of consumers has no order.
        return {**value, "description": sorted(re.split("[, ]+", value["description"]))}
    if "hdrs" in value:
        value = {**value, "hdrs": headers_of(value["hdrs"])}
    # The filter of a mirror is told as soon as the mirror has begun.
    if "did_create" in value and "mirror" in value:
        mirror = {key: one for key, one in value["mirror"].items() if key != "filter_subject"}
        value = {**value, "mirror": mirror}
    # Names that a server makes up stand anywhere in a list, which is sorted by them: also before
    # the part of it that is shown.
    listed = value.get("consumers")
    if isinstance(listed, list) and (
        value.get("offset") or any(MADE_UP.search(str(one)) for one in listed)
    ):
        value = {**value, "consumers": len(listed)}
    # nats-server counts a message 0 as deleted, in a stream in a file that never had one.
    if value.get("deleted") == [0]:
        value = {key: one for key, one in value.items() if key not in ("deleted", "num_deleted")}
    # An update repeats where a stream began, and changes it not.
    dropped = {"_nats.ver"} | ({"first_seq"} if "retention" in value else set())
    return {
        key: pruned(one)
        for key, one in value.items()
        if key not in dropped and not key.startswith("_headwater.")
    }


def headers_of(text: str) -> str:
    """A header block as answers have it; which origin a source follows is its own."""
    return ORIGINS.sub(r"\1", base64.b64decode(text).decode(errors="replace"))


class Player:
    """One history on two ports. Who has a login has an account alone, and leaves nothing in it."""

    def __init__(self, ports: tuple[int, int], login: str = "") -> None:
        self.ports = ports
        self.name = f"H{next(_numbers):06d}"
        self.sides = [Side(self.name, login), Side(self.name, login)]
        self.alone = bool(login)
        self.asked = itertools.count(1)
        self.ends: list[float] = []
        """When the time of each request for messages is over, by the loop's clock."""

    async def play(self, steps: list[Step]) -> tuple[int, Any, Any] | None:
        """The first step of which something else came, with what came on both sides."""
        try:
            for side, port in zip(self.sides, self.ports, strict=True):
                await side.open(port)
            if self.alone:
                await self.clear()
            for number, step in enumerate(steps):
                await self.do(step)
                if self.unlike():
                    # What is due as a step ends may come a moment later on one side.
                    await self.settle(0)
                ours, theirs = (sorted_by_inbox(side.take()) for side in self.sides)
                if ours == theirs:
                    continue
                if not AGES.search(str(steps)) or not await self.aged(step):
                    return number, ours, theirs
                if not READS.search(str(step)):
                    return None
            return None
        finally:
            if self.alone:
                await self.clear()
            for side in self.sides:
                for name in (f"{self.name}M", self.name):
                    side.publish(f"$JS.API.STREAM.DELETE.{name}", "", b"", [])
                await side.close()

    async def clear(self) -> None:
        """Delete every stream that there is."""
        await self.do(api("STREAM.NAMES", None))
        for side in self.sides:
            names = re.findall(rb'"streams":\s*\[([^\]]*)', b"".join(f.payload for f in side.seen))
            for name in re.findall(rb'"([^"]*)"', b"".join(names)):
                side.publish(f"$JS.API.STREAM.DELETE.{name.decode()}", "", b"", [])
        await self.do(api("STREAM.NAMES", None))
        for side in self.sides:
            side.take()
            side.deliveries.clear()
        await self.do(api("INFO", None))
        for side in self.sides:
            [told] = [frame.payload for frame in side.seen if b"account_info" in frame.payload]
            side.before = {key: json.loads(told)["api"][key] for key in COUNTS}
            side.take()
            side.deliveries.clear()

    def unlike(self) -> bool:
        """Whether what has come and was not taken yet differs."""
        ours, theirs = (sorted_by_inbox(side.lines()) for side in self.sides)
        return ours != theirs

    async def aged(self, step: Step) -> bool:
        """Whether only one side had ended what was old enough, when a step came to something
        else. Then both hold the same a while later."""
        asked = step if READS.search(str(step)) else HELD
        for tries in range(AGAIN):
            await self.do(asked)
            ours, theirs = (sorted_by_inbox(side.take()) for side in self.sides)
            if ours == theirs:
                return tries > 0 or asked is step
            await asyncio.sleep(AGED_S)
        return False

    async def do(self, step: Step) -> None:
        """Do one step on both sides, and wait for what comes of it."""
        if step["do"] == "wait":
            await asyncio.sleep(step["seconds"])
            await self.settle(0)
            await self.past_ends()
            return
        await self.past_ends()
        now = asyncio.get_running_loop().time()
        self.ends += [now + float(ns) / 1e9 for ns in EXPIRES.findall(step.get("body", ""))]
        inbox = f"{self.name}i.{next(self.asked)}"
        least = 1
        for side in self.sides:
            if step["do"] == "ask":
                body = self.own(step["body"]).encode(errors="surrogateescape")
                side.publish(self.own(step["subject"]), inbox, body, step.get("headers", []))
            elif step["do"] == "publish":
                headers = [(key, self.own(value)) for key, value in step["headers"]]
                reply = self.own(step["reply"]) if "reply" in step else inbox
                side.publish(self.own(step["subject"]), reply, step["payload"].encode(), headers)
            elif step["do"] == "pull":
                subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.name}.{step['consumer']}"
                side.publish(subject, inbox, step["body"].encode(errors="surrogateescape"), [])
                least = 0
            elif side.deliveries:
                # Which of two consumers delivers first is chance.
                known = sorted(side.deliveries, key=lambda subject: subject.split(".")[3])
                reply = known[step["which"] % len(known)]
                side.publish(reply, inbox if step["asked"] else "", step["body"].encode(), [])
                least = int(step["asked"])
            else:
                least = 0
        await self.settle(least)
        await self.past_ends()

    async def past_ends(self) -> None:
        """Wait until no request is about to end, or has just ended."""
        clock = asyncio.get_running_loop().time
        near = False
        for end in sorted(self.ends):
            if abs(end - clock()) < AROUND_S:
                near = True
                await asyncio.sleep(end + AROUND_S - clock())
        self.ends = [end for end in self.ends if end > clock()]
        if near:
            await self.settle(0)

    def own(self, text: str) -> str:
        return text.replace("%", self.name)

    async def settle(self, least: int) -> None:
        """Wait until both sides have said as much, `least` things at least, and are quiet."""
        loop = asyncio.get_running_loop()
        end = loop.time() + LATE_S
        quick = least
        while loop.time() < end:
            counts = [len(side.seen) for side in self.sides]
            for side in self.sides:
                side.heard.clear()
            waits = [asyncio.create_task(side.heard.wait()) for side in self.sides]
            enough = counts[0] == counts[1] and counts[0] >= quick
            done, waiting = await asyncio.wait(
                waits, timeout=QUIET_S if enough else 0.25, return_when=asyncio.FIRST_COMPLETED
            )
            for task in waiting:
                task.cancel()
            if not done and enough:
                return
            if not done and counts[0] == counts[1]:
                quick = 0


def sorted_by_inbox(lines: list[str]) -> list[str]:
    """What came, by subscription and otherwise in order: their order among each other is chance.
    So is that of several consumers that answer one message."""
    several = len({consumer(line) for line in lines} - {""}) > 1
    return sorted(lines, key=lambda line: (*place(line), consumer(line) if several else ""))


def consumer(line: str) -> str:
    """The consumer that delivered it; empty when none did."""
    found = re.search(r"\$JS\.ACK\.[^.]+\.([^.]+)\.", line)
    return found[1] if found else ""


def place(line: str) -> tuple[str, bool]:
    """The subscription, and whether its place in it is chance: of the answer to an ack, which waits
    until that is safe, and to what makes a consumer end or begin anew."""
    acked = line.startswith("MSG") and line.endswith("] b'' b''") and "$JS.ACK" not in line
    late = acked or LATE.search(line) is not None
    return re.split(r"[,\]]", line)[1] if "," in line else line, late
