"""Imports by themselves: what bounds them, and that nothing goes in circles."""

import asyncio
import time
from typing import Any

import pytest

from headwater.edge.broker.account import Account
from headwater.edge.broker.imports import responses
from headwater.edge.broker.imports.responses import Crossing, ServiceExport
from headwater.edge.broker.imports.service_import import ServiceImport
from headwater.edge.broker.imports.stream_imports import (
    StreamImport,
    StreamImports,
    intersection,
)
from headwater.edge.kernel.kernel import CallbackSink, Kernel
from tests.waiting import until

INFO = b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n"


class World:
    """Two accounts of one kernel; `got` has what sinks received."""

    def __init__(self) -> None:
        self.kernel = Kernel(asyncio.get_running_loop())
        self.a, self.b = Account("A", self.kernel), Account("B", self.kernel)
        self.crossing = Crossing(self.kernel, lambda *told: b"{}")
        self.got: list[tuple[bytes, ...]] = []

    def take(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, _: Any) -> None:
        self.got.append((subject, reply, headers, payload))

    def listen(self, account: Account, subject: bytes, queue: bytes | None = None) -> CallbackSink:
        sink = CallbackSink(subject, self.take, queue)
        account.insert(sink)
        return sink

    def service(
        self, importer: Account, exporter: Account, kind: str = "single", seconds: float = 60.0
    ) -> None:
        export = ServiceExport(kind, round(seconds * 1e9))
        importer.insert(
            ServiceImport(self.crossing, b"svc", importer, exporter, export, None, None, False)
        )


async def test_a_request_crosses_and_its_answer_comes_back() -> None:
    world = World()
    world.service(world.a, world.b)
    assert world.a.send(b"svc", b"?", b"inbox") == 0
    assert len(world.crossing.waiting[world.b]) == 0
    world.listen(world.b, b"svc")
    world.listen(world.a, b"inbox")
    assert world.a.send(b"svc", b"?", b"inbox", b"NATS/1.0\r\nk: v\r\n\r\n") == 1
    subject, reply, headers, payload = world.got.pop()
    assert (subject, payload) == (b"svc", b"?")
    assert headers == b"NATS/1.0\r\nk: v\r\nNats-Request-Info: {}\r\n\r\n"
    assert world.b.send(reply, b"!") == 1
    assert world.got.pop() == (b"inbox", b"", b"", b"!")
    assert world.b.send(reply, b"again") == 0
    world.crossing.stop()


async def test_answers_that_never_come_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "RESPONSES_MAX", 3)
    world = World()
    world.listen(world.b, b"svc")
    world.listen(world.a, b"inbox.*")
    world.service(world.a, world.b, seconds=0.05)
    for number in range(4):
        world.a.send(b"svc", b"", b"inbox.%d" % number)
    waiting = world.crossing.waiting[world.b]
    assert len(waiting) == 3
    replies = [reply for _, reply, _, _ in world.got]
    assert world.b.send(replies[0], b"") == 0
    assert world.b.send(replies[1], b"") == 1
    await until(lambda: not len(waiting), "the other ends by its time")
    assert world.b.send(replies[2], b"") == 0
    world.crossing.stop()


async def test_services_in_a_circle_end() -> None:
    world = World()
    world.service(world.a, world.b)
    world.service(world.b, world.a)
    assert world.a.send(b"svc", b"", b"inbox") == 0
    world.listen(world.b, b"svc")
    assert world.a.send(b"svc", b"") == 1
    assert world.got == [(b"svc", b"", INFO, b"")]
    world.crossing.stop()


async def test_publishing_services_in_a_circle_end() -> None:
    world = World()
    calls = []

    def again(subject: bytes, *rest: object) -> None:
        calls.append(subject)
        world.a.send(b"svc", b"")

    world.service(world.a, world.b)
    world.b.insert(CallbackSink(b"svc", again))
    world.a.send(b"svc", b"")
    assert 1 < len(calls) <= 16


async def test_streams_do_not_chain_and_follow_interest() -> None:
    world = World()
    to_a = StreamImport(world.b, b"x.>", b"b.x.>", None, None)
    streams = StreamImports(world.crossing, world.a, [to_a])
    back = StreamImports(
        world.crossing, world.b, [StreamImport(world.a, b"x.>", b"x.>", None, None)]
    )
    assert not world.b.has_interest(b"x.1")
    sink = world.listen(world.a, b">")
    assert world.b.has_interest(b"x.1")
    assert not world.b.has_interest(b"y")
    world.a.remove(sink)
    assert not world.b.has_interest(b"x.1")
    sink = world.listen(world.b, b"x.*", b"q")
    assert [[s.queue for s in group] for group in world.a.trie.find(b"x.1")[1]] == [[b"q"]]
    streams.stop()
    back.stop()
    assert not world.a.has_interest(b"x.1")


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (b"a.b", b"a.b", b"a.b"),
        (b"a.*", b"*.b", b"a.b"),
        (b">", b"a.*", b"a.*"),
        (b"a.>", b"*.b.c", b"a.b.c"),
        (b"a.>", b"a", None),
        (b"a.b", b"a.c", None),
        (b"a.*.>", b"*.b.>", b"a.b.>"),
        (b"*", b"a.b", None),
        (b"a.*.c", b"a.>", b"a.*.c"),
    ],
)
def test_intersections(first: bytes, second: bytes, both: bytes | None) -> None:
    assert intersection(first, second) == both
    assert intersection(second, first) == both


def subscribing(loop: asyncio.AbstractEventLoop, count: int) -> float:
    """Processor time of some subscriptions in an account with so many stream imports."""
    kernel = Kernel(loop)
    importer, exporter = Account("A", kernel), Account("B", kernel)
    crossing = Crossing(kernel, lambda *told: b"{}")
    entries = [StreamImport(exporter, b"x.%d" % n, b"l.%d" % n, None, None) for n in range(count)]
    imports = StreamImports(crossing, importer, entries)
    sinks = [CallbackSink(b"l.%d" % n, lambda *told: None) for n in range(500)]
    began = time.process_time()
    for sink in sinks:
        importer.insert(sink)
    took = time.process_time() - began
    assert all(exporter.has_interest(b"x.%d" % n) for n in range(500))
    imports.stop()
    assert not exporter.has_interest(b"x.1")
    return took


async def test_a_subscription_asks_only_the_imports_that_it_wants() -> None:
    """What it costs hardly depends on how many there are."""
    loop = asyncio.get_running_loop()
    few = min(subscribing(loop, 500) for _ in range(3))
    many = min(subscribing(loop, 10_000) for _ in range(3))
    assert many < 5 * few
