"""Answers of the monitoring port while a node recovers and its event loop is busy.

A thread of its own takes requests one at a time: /healthz is 503 and tells how far the start is,
/metrics has the same as numbers, everything else is 503. It ends when the node serves; what waits
in the backlog by then is answered by the real service.
"""

import json
import logging
import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from headwater.edge.facts.version import VERSION
from headwater.edge.monitor.pages.healthz import UNAVAILABLE
from headwater.edge.observed.start_progress import StartProgress

REQUEST_SECONDS = 0.5
"""How long one client may take for its request; the next one waits meanwhile."""
REQUEST_BYTES = 4096
"""What is read of a request, at most."""

log = logging.getLogger("headwater.monitor")


class EarlyAnswers:
    """Serves the given doors, (listening socket, TLS context or None), until `stop`."""

    def __init__(
        self,
        doors: list[tuple[socket.socket, ssl.SSLContext | None]],
        base: str,
        progress: StartProgress,
        server: str,
    ) -> None:
        """`base` is what the paths begin with, `server` the name that metrics bear."""
        self._doors = doors
        self._base = base
        self._progress = progress
        self._server = server
        self._inside, self._outside = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="early-http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more requests; waits for the one under way."""
        self._outside.close()
        self._thread.join(2 * REQUEST_SECONDS)

    def _run(self) -> None:
        poll = select.poll()
        doors = {sock.fileno(): (sock, context) for sock, context in self._doors}
        for number in doors:
            poll.register(number, select.POLLIN)
        poll.register(self._inside, select.POLLIN)
        with self._inside:
            while True:
                ready = {number for number, _ in poll.poll()}
                if self._inside.fileno() in ready:
                    return
                for number in ready:
                    try:
                        self._answer(*doors[number])
                    except OSError as error:
                        log.debug("a request during recovery failed: %s", error)

    def _answer(self, door: socket.socket, context: ssl.SSLContext | None) -> None:
        plain, _ = door.accept()
        with plain:
            plain.settimeout(REQUEST_SECONDS)
            conn = plain if context is None else context.wrap_socket(plain, server_side=True)
            with conn:
                words = _request(conn, self._progress.seconds).split()
                conn.sendall(self._reply(words[1] if len(words) > 1 else ""))

    def _reply(self, target: str) -> bytes:
        path = target.partition("?")[0].rstrip("/").removeprefix(self._base)
        if path == "/metrics":
            return _response(200, "text/plain; version=0.0.4; charset=utf-8", self._metrics())
        numbers = self._progress.numbers()
        text = "recovering: {recovered_segments} of {recovery_segments} segments"
        body: dict[str, Any] = {
            "status": "unavailable",
            "status_code": UNAVAILABLE,
            "error": text.format(**numbers),
            "headwater": {"recovering": True, **numbers},
        }
        return _response(UNAVAILABLE, "application/json", json.dumps(body))

    def _metrics(self) -> str:
        label = self._server.replace("\\", "\\\\").replace('"', '\\"')
        numbers = {"recovering": 1, **self._progress.numbers()}
        lines = [f'headwater_build_info{{version="{VERSION}"}} 1']
        for name, value in numbers.items():
            lines.append(f"# TYPE headwater_storage_{name} gauge")
            lines.append(f'headwater_storage_{name}{{server_id="{label}"}} {value}')
        return "\n".join(lines) + "\n"


def _request(conn: socket.socket, clock: Callable[[], float]) -> str:
    """The first line of a request; "" when none comes. Raises OSError."""
    data = b""
    until = clock() + REQUEST_SECONDS
    while b"\r\n\r\n" not in data and len(data) < REQUEST_BYTES and clock() < until:
        more = conn.recv(REQUEST_BYTES)
        if not more:
            break
        data += more
    return data.partition(b"\r\n")[0].decode("ascii", "replace")


def _response(status: int, content_type: str, text: str) -> bytes:
    reason = "OK" if status == 200 else "Service Unavailable"
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(text.encode())}\r\nConnection: close\r\n\r\n"
    )
    return (head + text).encode()
