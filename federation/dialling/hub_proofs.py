"""Which of many addresses that discovery found is a hub that proves itself.

Anybody may announce a thousand hubs. They are asked side by side, with little time for each, and
told nothing: the greeting is read, and TLS shows a certificate or does not. Who failed waits.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

from headwater.edge.conf.options import LeafRemoteOptions
from headwater.federation.dialling.client_tls import dialled_tls
from headwater.federation.dialling.credentials import parse_url
from headwater.security.errors import SecurityError

SIDE_BY_SIDE = 256
"""Connections at a time: a thousand addresses that say nothing take four rounds."""

ASKED_S = 1.0
"""Time for one address, which is on the same LAN; it doubles with each failure of the address."""

ASKED_MAX_S = 4.0

SEARCH_S = 5.0
"""Time for one search. Who was announced meanwhile is asked in the next one, before all others."""

FAILED_S = 30.0
"""Who failed is asked again after this."""

GREETING_MAX = 64 * 1024
READ_BYTES = 16 * 1024

Open = Callable[[str, int, float], Awaitable[socket.socket]]
"""A connected socket to a host and port within a time. Raises OSError."""


class HubProofs:
    """Asks addresses of one remote. What it keeps is bounded by the addresses that it is given."""

    def __init__(self, options: LeafRemoteOptions, dial: Open) -> None:
        self._options = options
        self._dial = dial
        self._failed: dict[str, tuple[float, int]] = {}
        """When who failed may be asked again, in the loop's time, and how often it has failed."""
        self._downs: dict[str, int] = {}
        """How often who proved itself made no link."""

    def let_down(self, url: str) -> None:
        """Who proved itself by `url` made no link. Somebody between may let a proof pass and
        nothing else, so who has let down less is asked before it, other machines first."""
        self._downs[url] = self._downs.get(url, 0) + 1

    async def first(self, urls: Sequence[str]) -> str | None:
        """The first of `urls` that proves itself; None if none does now."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        end = now + SEARCH_S
        present = set(urls)
        self._failed = {url: row for url, row in self._failed.items() if url in present}
        self._downs = {url: count for url, count in self._downs.items() if url in present}
        again = [url for url, (at, _) in self._failed.items() if at <= now]
        waiting = again + [url for url in dict.fromkeys(urls) if url not in self._failed]
        for group in self._groups(waiting):
            found = await self._search(group, end - loop.time())
            if found is not None or loop.time() >= end:
                return found
        return None

    def _groups(self, urls: list[str]) -> list[list[str]]:
        """`urls` in groups that are asked one after the other."""
        if not self._downs:
            return [urls]
        hosts: dict[str, int] = {}
        for url, count in self._downs.items():
            host = _host(url)
            hosts[host] = hosts.get(host, 0) + count
        groups: dict[tuple[int, int], list[str]] = {}
        for url in urls:
            rank = hosts.get(_host(url), 0), self._downs.get(url, 0)
            groups.setdefault(rank, []).append(url)
        return [groups[rank] for rank in sorted(groups)]

    async def _search(self, waiting: list[str], seconds: float) -> str | None:
        """The first that proves itself within a time. The last of `waiting` is asked first."""
        loop = asyncio.get_running_loop()
        found: list[str] = []

        async def ask() -> None:
            while waiting and not found:
                url = waiting.pop()
                if await self._is_hub(url):
                    found.append(url)
                    for task in tasks:
                        if task is not asyncio.current_task():
                            task.cancel()
                else:
                    self._failed[url] = loop.time() + FAILED_S, self._failures(url) + 1

        tasks = [loop.create_task(ask()) for _ in range(min(SIDE_BY_SIDE, len(waiting)))]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=seconds)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return found[0] if found else None

    def _failures(self, url: str) -> int:
        return self._failed.get(url, (0.0, 0))[1]

    async def _is_hub(self, url: str) -> bool:
        limit = min(ASKED_S * 2.0 ** min(self._failures(url), 8), ASKED_MAX_S)
        try:
            async with asyncio.timeout(limit):
                parts = parse_url(url)
                sock = await self._dial(parts.host, parts.port, limit)
                with sock:
                    return await self._proof(sock, parts.host)
        except (OSError, TimeoutError, SecurityError, ValueError):
            return False

    async def _proof(self, sock: socket.socket, host: str) -> bool:
        """Whether the peer shows by TLS who it is. Raises OSError."""
        loop = asyncio.get_running_loop()
        tls = self._options.tls
        if tls is None or not tls.handshake_first:
            greeting = b""
            while b"\n" not in greeting:
                data = await loop.sock_recv(sock, READ_BYTES)
                greeting += data
                if not data or len(greeting) > GREETING_MAX:
                    return False
        session = dialled_tls(tls, host, self._options.hub_pins)
        while not session.ready:
            await loop.sock_sendall(sock, session.send(b""))
            data = await loop.sock_recv(sock, READ_BYTES)
            if not data:
                return False
            session.receive(data)
        return True


def _host(url: str) -> str:
    """The machine of an address, as far as its text tells."""
    return url.rpartition("@")[2].rpartition("//")[2].rpartition(":")[0]
