"""What waits for a link goes out in the order that its lanes say, whatever waits before it."""

import asyncio
import random
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.edge.ports.ports import Clock
from tests.federation.one_end import OneEnd
from tests.waiting import silence

ACK = b"$JS.ACK.S.C.1.7.3.99.0"
PENDING_MAX = 64 << 20
SLOW = 8000
"""Bytes a second of 64 kbit/s."""
PIECE = 4 << 10
FIRST = 16 << 10
"""What a line has at first of bulk that nobody has confirmed."""
URGED_MAX = 1 << 20
"""Lines go ahead of so many bytes that are urgent themselves."""


class Through:
    """A filter that changes nothing, and counts what goes out."""

    def __init__(self) -> None:
        self.passed = 0
        self.largest = 0
        """Bytes of the largest piece since this was set."""

    def send(self, data: bytes) -> bytes:
        self.passed += len(data)
        self.largest = max(self.largest, len(data))
        return data

    def receive(self, data: bytes) -> bytes:
        return data


class Lanes:
    """What a link should send: a frame that has begun, what is urgent, and bulk behind them."""

    def __init__(self) -> None:
        self.begun = b""
        self.first: deque[bytes] = deque()
        self.urgent: deque[bytes] = deque()
        self.bulk: deque[bytes] = deque()

    def take(self, n: int) -> bytes:
        """The next `n` bytes."""
        taken = bytearray()
        while len(taken) < n:
            if not self.begun:
                lane = self.first or self.urgent or self.bulk
                self.begun = lane.popleft()
            piece = self.begun[: n - len(taken)]
            taken += piece
            self.begun = self.begun[len(piece) :]
        return bytes(taken)


@contextmanager
def slow_link(
    filtered: bool, time_source: Clock | None = None
) -> Iterator[tuple[OneEnd, socket.socket]]:
    """A link whose peer wants everything and takes little."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    theirs.setblocking(False)
    link = OneEnd(max_pending=PENDING_MAX, time_source=time_source)
    link.conn.attach(ours)
    link.conn.feed(b"LS+ >\r\n")
    if filtered:
        link.conn.use_filter(Through())
    try:
        yield link, theirs
    finally:
        link.conn.close("Client Closed")
        theirs.close()


def drained(theirs: socket.socket, at_most: int) -> bytes:
    """What the peer has been sent, up to so many bytes."""
    got = b""
    try:
        while len(got) < at_most:
            got += theirs.recv(at_most - len(got))
    except BlockingIOError:
        pass
    return got


def say(link: OneEnd, lanes: Lanes, chance: random.Random) -> int:
    """Let the link queue one frame of any kind; returns its length."""
    size = chance.choice((0, 3, 200, 5000, 70_000))
    body = chance.randbytes(size)
    kind = chance.choice(("bulk", "bulk", "bulk", "plain", "urgent", "line", "ping"))
    subject = b"s.%d" % chance.randrange(1000)
    if kind == "bulk":
        frame = b"LMSG %b %b %d\r\n%b\r\n" % (subject, ACK, size, body)
        lanes.bulk.append(frame)
        link.account.send(subject, body, reply=ACK)
    elif kind == "plain":
        frame = b"LMSG %b %d\r\n%b\r\n" % (subject, size, body)
        lanes.urgent.append(frame)
        link.account.send(subject, body)
    elif kind == "urgent":
        frame = b"LMSG %b %b %d\r\n%b\r\n" % (subject, ACK, size, body)
        lanes.urgent.append(frame)
        link.kernel.urgent = True
        link.account.send(subject, body, reply=ACK)
        link.kernel.urgent = False
    elif kind == "line":
        frame = b"LS+ %b\r\n" % subject
        lanes.urgent.append(frame)
        link.conn.queue(frame)
    else:
        frame = b"PONG\r\n"
        ahead = sum(map(len, lanes.first)) + sum(map(len, lanes.urgent))
        (lanes.first if ahead <= URGED_MAX else lanes.urgent).append(frame)
        link.conn.feed(b"PING\r\n")
    return len(frame)


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("seed", range(20))
async def test_each_lane_keeps_its_order_and_its_place(seed: int, filtered: bool) -> None:
    chance = random.Random(seed)
    with slow_link(filtered) as (link, theirs):
        lanes, said, settled = Lanes(), 0, 0
        on_its_way = bytearray()

        def settle() -> None:
            """Learn what the link has sent by now, by the order of the lanes at this moment."""
            nonlocal settled
            through = link.conn.filter
            passed = through.passed if through else said - link.conn.pending
            on_its_way.extend(lanes.take(passed - settled))
            settled = passed

        async def arrive(at_most: int) -> int:
            piece = drained(theirs, at_most)
            await asyncio.sleep(0)
            settle()
            assert on_its_way.startswith(piece), seed
            del on_its_way[: len(piece)]
            return len(piece)

        got = 0
        for _ in range(300):
            for _ in range(chance.choice((0, 1, 1, 8))):
                said += say(link, lanes, chance)
                settle()
            link.kernel.turn()
            settle()
            if chance.random() < 0.7:
                got += await arrive(chance.choice((10, 1000, 100_000)))
        while got < said:
            got += await arrive(1 << 20)
        assert link.conn.pending == 0
        assert not on_its_way


async def test_what_is_urgent_passes_any_amount_of_bulk() -> None:
    with slow_link(False) as (link, theirs):
        for n in range(400):
            link.account.send(b"bulk", b"%0100000d" % n, reply=ACK)
        link.kernel.turn()
        assert link.conn.pending > 39_000_000
        for n in range(1000):
            link.account.send(b"alarm", b"%d" % n)
            link.kernel.turn()
        got = b""
        while b"LMSG alarm 3\r\n999\r\n" not in got:
            got += drained(theirs, 1 << 16)
            await asyncio.sleep(0)
        assert len(got) < 400_000
        assert link.conn.reserved < PENDING_MAX * 2


@pytest.mark.parametrize("fast", [False, True])
async def test_only_a_fast_line_gets_large_pieces(fast: bool) -> None:
    with slow_link(filtered=True) as (link, theirs):
        if fast:
            link.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
        for _ in range(200):
            link.account.send(b"s", bytes(30_000), reply=ACK)
        link.kernel.turn()
        through = link.conn.filter
        # What an empty socket was given is on its way.
        got = drained(theirs, through.passed - 1)
        through.largest = 0
        while len(got) < 4 << 20 if fast else through.passed < 600_000:
            got += drained(theirs, 1 << 20 if fast else 5_000)
            if fast:
                await asyncio.sleep(0)
            else:
                await silence(0.01)
        assert (through.largest > 64 << 10) == fast, through.largest


@pytest.mark.parametrize("seed", range(10))
async def test_large_bulk_goes_in_pieces_between_which_others_go(seed: int) -> None:
    chance = random.Random(seed)
    with slow_link(filtered=seed % 2 == 1) as (link, theirs):
        link.conn.in_pieces = True
        link.conn.share_line(link.conn.sock, SLOW)
        far, bulk, urgent = OneEnd(max_pending=PENDING_MAX), [], []
        far.conn.in_pieces = True
        for _ in range(60):
            body = chance.randbytes(chance.choice((0, 3, 5000, 8192, 70_000, 200_000)))
            bulk.append(body)
            link.account.send(b"$JS.M.x", body, reply=ACK)
            link.kernel.turn()
            far.conn.feed(drained(theirs, chance.choice((10, 5000, 100_000))))
            await asyncio.sleep(0)
            urgent.append(b"%d" % len(urgent))
            link.account.send(b"plain", urgent[-1])
        while link.conn.pending:
            far.conn.feed(drained(theirs, 1 << 20))
            await asyncio.sleep(0)
        far.conn.feed(drained(theirs, 1 << 20))
        assert not far.conn.closed and not far.conn.midway
        assert [body for subject, _, _, body in far.got if subject == b"plain"] == urgent
        assert [body for subject, _, _, body in far.got if subject != b"plain"] == bulk


async def test_a_request_waits_for_a_piece_of_a_message_alone() -> None:
    with slow_link(filtered=False) as (link, theirs):
        link.conn.in_pieces = True
        link.conn.share_line(link.conn.sock, SLOW)
        far = OneEnd(max_pending=PENDING_MAX)
        far.conn.in_pieces = True
        link.account.send(b"$JS.M.x", bytes(1_000_000), reply=ACK)
        link.kernel.turn()
        link.account.send(b"plain", b"asked")
        passed = 0
        while not far.got:
            came = drained(theirs, 512)
            passed += len(came)
            far.conn.feed(came)
            await asyncio.sleep(0)
        assert far.got == [(b"plain", b"", b"", b"asked")]
        assert passed < 5 * PIECE


async def test_bulk_waits_until_the_peer_confirms_what_is_on_its_way() -> None:
    """A line takes all that it gets, and holds it: the link gives it little before the peer says
    that it has come, and what is urgent still goes at once."""
    with slow_link(filtered=False) as (link, theirs):
        link.conn.share_line(link.conn.sock, 0)
        link.conn.know_pieces(True)
        for _ in range(40):
            link.account.send(b"$JS.M.x", bytes(60_000), reply=ACK)
        link.kernel.turn()
        held = await rest_of(theirs)
        assert FIRST <= len(held) < FIRST + 3 * PIECE
        assert link.conn.held and not link.conn.waiting and link.conn.pending > 2_000_000
        asked = held.count(b"PING\r\n")
        link.account.send(b"plain", b"asked")
        link.kernel.turn()
        assert await rest_of(theirs) == b"LMSG plain 5\r\nasked\r\n"
        passed = 0
        while asked:
            link.conn.feed(b"PONG\r\n" * asked)
            link.kernel.turn()
            came = await rest_of(theirs)
            asked, passed = came.count(b"PING\r\n"), passed + len(came)
        assert link.conn.pending == 0 and passed > 2_300_000
        assert link.conn.line.window > 1 << 20  # answers came at once: it grew


class HandClock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns


async def test_a_distant_peer_is_no_slow_line() -> None:
    """Behind two satellites each answer comes 1.6 s late, however little is on its way."""
    clock = HandClock()
    with slow_link(filtered=False, time_source=clock) as (link, theirs):
        link.conn.share_line(link.conn.sock, 0)
        link.conn.know_pieces(True)
        for _ in range(80):
            link.account.send(b"$JS.M.x", bytes(60_000), reply=ACK)
        link.kernel.turn()
        rounds = 0
        while asked := (await rest_of(theirs)).count(b"PING\r\n"):
            clock.now_ns += 1_600_000_000
            link.conn.feed(b"PONG\r\n" * asked)
            link.kernel.turn()
            rounds += 1
        assert link.conn.pending == 0
        assert link.conn.line.window > 1 << 20
        assert rounds < 40


async def grown(link: OneEnd, theirs: socket.socket) -> None:
    """Bulk has passed, which the peer confirmed at once, until it was bounded no more."""
    link.conn.share_line(link.conn.sock, 0)
    link.conn.know_pieces(True)
    for _ in range(100):
        link.account.send(b"$JS.M.x", bytes(60_000), reply=ACK)
    link.kernel.turn()
    while asked := (await rest_of(theirs)).count(b"PING\r\n"):
        link.conn.feed(b"PONG\r\n" * asked)
        link.kernel.turn()
    assert link.conn.pending == 0 and link.conn.line.window > 4 << 20


@pytest.mark.parametrize("filtered", [False, True])
async def test_what_a_line_carried_before_a_pause_is_old(filtered: bool) -> None:
    """It may have become slow: the next bulk waits again until the peer confirms the first of it.
    Neither does a filter, such as TLS, get more at a time."""
    clock = HandClock()
    with slow_link(filtered=filtered, time_source=clock) as (link, theirs):
        await grown(link, theirs)
        clock.now_ns += 20 * 10**9
        for _ in range(4):
            link.account.send(b"$JS.M.x", bytes(150_000), reply=ACK)
        link.kernel.turn()
        held = await rest_of(theirs)
        assert link.conn.held
        assert len(held) < 2 * FIRST + 3 * PIECE, len(held)
        passed, asked = len(held), held.count(b"PING\r\n")
        while asked:
            link.conn.feed(b"PONG\r\n" * asked)
            link.kernel.turn()
            came = await rest_of(theirs)
            asked, passed = came.count(b"PING\r\n"), passed + len(came)
        assert link.conn.pending == 0 and passed > 600_000


async def test_a_line_that_answers_no_more_gets_no_more() -> None:
    """One that has become slow shows that by its silence long before its late answer."""
    clock = HandClock()
    with slow_link(filtered=False, time_source=clock) as (link, theirs):
        await grown(link, theirs)
        passed = 0
        for _ in range(80):
            clock.now_ns += 250_000_000
            link.account.send(b"$JS.M.x", bytes(100_000), reply=ACK)
            link.kernel.turn()
            passed += len(await rest_of(theirs))
        assert passed < 3_000_000, passed


async def rest_of(theirs: socket.socket) -> bytes:
    """All that comes by a socket until nothing does."""
    got = b""
    while came := drained(theirs, 1 << 20):
        got += came
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return got
