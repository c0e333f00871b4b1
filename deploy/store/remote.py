"""Backups, restores and lost messages over JetStream's API: what a running server is asked for."""

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from headwater.edge.jetstream.backup.backup_file import BackedUp, BackupWriter, EntryCounter
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.node.rebuild import FetchedMessage
from headwater.edge.wire.client import ApiError, Client, NoResponders, Refused, TimedOut, checked
from headwater.edge.wire.login import Login
from headwater.edge.wire.message import Message, WireError

CHUNK_BYTES = 128 << 10
WINDOW = 16
"""Chunks of a restore that are on the way at once."""
OWN_HEADERS = ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp")
"""Headers that a direct get adds to the message."""
NO_MESSAGE = 10037
"""The API's `err_code` for a sequence that a stream does not have."""
TIME = re.compile(r"(\d+-\d+-\d+T\d+:\d+:\d+)(?:\.(\d+))?Z?$")

OnProgress = Callable[[int, int], None]


INCOMPLETE = Problem(ProblemKind.FAILED, "the server's snapshot is not complete; verify it again")


def connect(url: str, login: Login) -> Client:
    """A connection for the store commands. Raises WireError, SecurityError."""
    return Client(url, login, name="headwater store")


def streams(client: Client) -> Iterator[dict[str, Any]]:
    """The info of every stream of the account. Raises WireError."""
    offset = 0
    while True:
        answer = client.api("STREAM.LIST", offset=offset)
        found = answer.get("streams") or []
        yield from found
        offset += len(found)
        if not found or offset >= answer["total"]:
            return


def snapshot(client: Client, name: str) -> tuple[dict[str, Any], Iterator[bytes]]:
    """A stream's snapshot: the API's answer, and its chunks. Raises WireError."""
    target = client.new_inbox()
    answer = client.api(f"STREAM.SNAPSHOT.{name}", deliver_subject=target, chunk_size=CHUNK_BYTES)
    return answer, _chunks(client, target)


def _chunks(client: Client, target: str) -> Iterator[bytes]:
    while True:
        message = client.next()
        if message.subject != target:
            continue
        if not message.payload:
            if message.status not in (0, 204):
                raise WireError(f"the snapshot failed: {message.text or message.status}")
            return
        if message.reply:
            client.publish(message.reply, b"")
        yield message.payload


def save(client: Client, writer: BackupWriter, name: str, progress: OnProgress) -> dict[str, Any]:
    """Add one stream to a backup; "lost": what the server knows to be lost after it read all of the
    stream for that. Raises WireError, BackupError, OSError."""
    answer, chunks = snapshot(client, name)
    state = answer["state"]
    writer.begin("", answer["config"], state)
    for chunk in chunks:
        writer.data(chunk)
        progress(writer.counted, state["messages"])
    count = writer.end()
    lost = client.api(f"STREAM.INFO.{name}")["state"].get("lost") or {}
    return {
        "account": "", "stream": name, "messages": count, "lost": len(lost.get("msgs") or []),
    }  # fmt: skip


def read_through(client: Client, info: dict[str, Any], progress: OnProgress) -> dict[str, Any]:
    """Have the server read every message of a stream, which verifies it; what the server knows of
    its damage afterwards. Raises WireError, BackupError."""
    name = info["config"]["name"]
    _, chunks = snapshot(client, name)
    counter = EntryCounter()
    for chunk in chunks:
        counter.feed(chunk)
        progress(counter.messages, info["state"]["messages"])
    state = client.api(f"STREAM.INFO.{name}")["state"]
    lost = (state.get("lost") or {}).get("msgs") or []
    return {
        "account": "", "stream": name, "messages": state["messages"], "bytes": state["bytes"],
        "first_seq": state["first_seq"], "last_seq": state["last_seq"], "lost": len(lost),
        "lost_sequences": ", ".join(str(at) for at in lost[:8]),
        "damaged": [] if counter.complete else [INCOMPLETE.found(time.time_ns(), name).fields()],
    }  # fmt: skip


def put(client: Client, found: BackedUp, config: dict[str, Any], told: Callable[[], None]) -> int:
    """Restore a stream of a backup into the server; returns its messages. Raises WireError,
    BackupError."""
    try:
        return _put(client, found, config, told)
    except WireError as error:
        # Before the first chunk, or as nats-server behind the last one.
        if config.get("num_replicas", 1) > 1 and "(10074)" in str(error):
            raise WireError(f"{error}: give it fewer by --replicas") from error
        raise


def _put(client: Client, found: BackedUp, config: dict[str, Any], told: Callable[[], None]) -> int:
    name = config["name"]
    answer = client.api(f"STREAM.RESTORE.{name}", config=config, state=found.state)
    target = answer["deliver_subject"]
    waiting = 0
    for chunk, _ in found.chunks():
        for at in range(0, len(chunk), CHUNK_BYTES):
            client.publish(target, chunk[at : at + CHUNK_BYTES], client.new_inbox())
            waiting += 1
            while waiting >= WINDOW:
                _read_answer(client)
                waiting -= 1
        told()
    while waiting:
        _read_answer(client)
        waiting -= 1
    checked(target, client.request(target).payload)
    return found.messages


def _read_answer(client: Client) -> None:
    """A chunk was taken, or the restore failed."""
    message = client.next()
    if message.status:
        raise WireError("the server gave up the restore; its log tells why")
    if message.payload:
        checked(message.subject, message.payload)


def fetch(client: Client, stream: str, sequence: int) -> FetchedMessage | None:
    """One message of a stream by direct get, or by STREAM.MSG.GET where that is not allowed; None
    when the server does not have it. Raises WireError."""
    body = json.dumps({"seq": sequence}).encode()
    try:
        message = client.request(f"$JS.API.DIRECT.GET.{stream}", body)
    except (NoResponders, Refused, TimedOut):
        return _fetch_by_api(client, stream, sequence)
    if message.status or message.headers.get("Nats-Sequence") != str(sequence):
        return None
    return FetchedMessage(
        message.headers["Nats-Subject"].encode("utf-8", "surrogateescape"),
        own_headers(message),
        message.payload,
        nanoseconds(message.headers["Nats-Time-Stamp"]),
    )


def _fetch_by_api(client: Client, stream: str, sequence: int) -> FetchedMessage | None:
    try:
        message = client.api(f"STREAM.MSG.GET.{stream}", seq=sequence)["message"]
    except ApiError as error:
        if error.err_code == NO_MESSAGE:
            return None
        raise
    return FetchedMessage(
        message["subject"].encode("utf-8", "surrogateescape"),
        base64.b64decode(message.get("hdrs", "")),
        base64.b64decode(message.get("data", "")),
        nanoseconds(message["time"]),
    )


def own_headers(message: Message) -> bytes:
    """The header block of a message without what the direct get added; b"" when none is left."""
    lines = message.block.split(b"\r\n")
    added = tuple(f"{name}:".encode() for name in OWN_HEADERS)
    left = [line for line in lines[1:] if line and not line.startswith(added)]
    return b"\r\n".join([b"NATS/1.0", *left, b"", b""]) if left else b""


def nanoseconds(text: str) -> int:
    """A time as JetStream writes it, in ns since the epoch. Raises WireError."""
    found = TIME.match(text)
    if found is None:
        raise WireError(f"'{text}' is no time")
    whole = int(datetime.fromisoformat(f"{found[1]}+00:00").timestamp())
    return whole * 1_000_000_000 + int((found[2] or "").ljust(9, "0")[:9])
