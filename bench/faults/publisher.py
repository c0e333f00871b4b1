"""One connection that publishes until its server dies."""

import json
import threading
from collections.abc import Callable
from typing import Any

from bench.faults.promise_book import make_payload
from bench.wire import Link
from headwater.edge.wire.message import WireError

WINDOW = 500
"""Unacknowledged messages."""

PER_WRITE = 50
LINK_SECONDS = 5.0


class Publisher(threading.Thread):
    """Publishes messages of its own name to a few subjects, `WINDOW` of them unanswered at most.

    `acks` are (subject, message, sequence) in the order of arrival; `refused` are error answers.
    """

    def __init__(self, port: int, name: str, subject_of: Callable[[int], str], size: int) -> None:
        super().__init__(name=name, daemon=True)
        self.acks: list[tuple[str, str, int]] = []
        self.refused: list[str] = []
        self.begun = threading.Event()
        """Set when the first publish was answered, or none will be."""
        self._subject_of = subject_of
        self._size = size
        self._sent = 0
        self._done = 0
        self._link = Link(port, LINK_SECONDS)
        self._link.subscribe(f"_INBOX.{name}.*", "3")

    def run(self) -> None:
        """Publish within the window until the connection breaks."""
        try:
            self._publish()
        except (WireError, OSError):
            pass
        finally:
            self.begun.set()
            self._link.close()

    def _publish(self) -> None:
        frames = self._link.messages()
        while True:
            while self._sent - self._done <= WINDOW - PER_WRITE:
                self._link.send(b"".join(self._message() for _ in range(PER_WRITE)))
            frame = next(frames)
            answer: dict[str, Any] = json.loads(frame.payload or b'{"error":"no body"}')
            self._done += 1
            if "error" in answer:
                self.refused.append(str(answer["error"]))
            else:
                index = int(frame.subject.rpartition(".")[2])
                name = f"{self.name}-{index}"
                self.acks.append((self._subject_of(index), name, int(answer["seq"])))
            self.begun.set()

    def _message(self) -> bytes:
        index = self._sent
        self._sent += 1
        subject = self._subject_of(index)
        payload = make_payload(subject, f"{self.name}-{index}", self._size)
        head = f"PUB {subject} _INBOX.{self.name}.{index} {len(payload)}\r\n"
        return head.encode() + payload + b"\r\n"
