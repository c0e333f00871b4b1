"""`headwater serve` looks at its sockets before it sleeps, where there is a processor for that."""

import asyncio
import os
import socket
import threading

import pytest
import uvloop

from headwater.deploy.serve import look_before_sleep
from headwater.edge.conf.options import Options
from headwater.edge.node.node import Node
from tests.waiting import until


def ask_and_wait(port: int, enough: threading.Event) -> None:
    """One PING after the other, each when the last was answered."""
    with socket.create_connection(("127.0.0.1", port)) as link, link.makefile("rb") as lines:
        assert lines.readline().startswith(b"INFO")
        link.sendall(b'CONNECT {"verbose":false}\r\n')
        while not enough.is_set():
            link.sendall(b"PING\r\n")
            assert lines.readline() == b"PONG\r\n"


def test_who_asks_and_waits_finds_the_node_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with one processor, too: who looks lets the other run."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})

    async def run() -> None:
        loop = asyncio.get_running_loop()
        node = Node(Options(host="127.0.0.1", port=-1), loop)
        node.start()
        enough = threading.Event()
        try:
            look_before_sleep(node.kernel, loop)
            assert node.kernel.busy_poll.fd >= 0
            asking = asyncio.to_thread(ask_and_wait, node.facts.port, enough)
            task = loop.create_task(asking)
            await until(lambda: node.kernel.busy_poll.found > 10, "looks find what comes next")
            enough.set()
            await task
        finally:
            enough.set()
            await node.stop()

    uvloop.run(run())


def test_with_one_processor_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})

    async def run() -> None:
        loop = asyncio.get_running_loop()
        node = Node(Options(), loop)
        look_before_sleep(node.kernel, loop)
        assert node.kernel.busy_poll.fd == -1

    uvloop.run(run())


def test_on_a_loop_without_a_poll_descriptor_nobody_looks() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        node = Node(Options(), loop)
        look_before_sleep(node.kernel, loop)
        assert node.kernel.busy_poll.fd == -1

    asyncio.run(run())
