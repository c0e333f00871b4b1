"""The leaf protocol's bytes: frames cut at every place, and frames that make no sense."""

import asyncio
import random
import socket

import pytest

from headwater.edge.broker.rights.rules import Rules
from headwater.edge.kernel.kernel import Kernel
from headwater.federation.leaf.leaf_conn import LeafConn
from tests.federation.one_end import OneEnd, Session

STREAM = (
    b"LS+ wanted\r\nLS+ grouped workers 3\r\nPING\r\n"
    b"LMSG plain 5\r\nhello\r\n"
    b"LMSG plain reply.to 0\r\n\r\n"
    b"HMSG plain 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nxy\r\n"
    b"LMSG grouped | workers 2\r\nq1\r\n"
    b"LMSG grouped + back workers others 2\r\nq2\r\n"
    b"LMSG grouped 2\r\nq3\r\n"
    b"LMSG $JS.M.abc $JS.ACK.S.C.1.7.3.99.0@orders.eu 4\r\ndata\r\n"
    b"LS- wanted\r\nPONG\r\n"
)
EXPECTED = [
    (b"plain", b"", b"", b"hello"),
    (b"plain", b"reply.to", b"", b""),
    (b"plain", b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"xy"),
    (b"grouped", b"", b"", b"q1"),
    (b"grouped", b"back", b"", b"q2"),
    (b"$JS.M.abc", b"$JS.ACK.S.C.1.7.3.99.0", b"", b"data"),
]


async def test_frames_cut_at_every_byte() -> None:
    for cut in range(1, len(STREAM)):
        link = OneEnd()
        link.conn.feed(STREAM[:cut])
        link.conn.feed(STREAM[cut:])
        assert link.got == EXPECTED, cut
        assert list(link.conn.subs) == [(b"grouped", b"workers")]
        assert not link.conn.closed


async def test_frames_one_byte_at_a_time() -> None:
    link = OneEnd()
    for i in range(len(STREAM)):
        link.conn.feed(STREAM[i : i + 1])
    assert link.got == EXPECTED


@pytest.mark.parametrize(
    "frame",
    [
        b"LMSG\r\n",
        b"LMSG x\r\n",
        b"LMSG x -1\r\n\r\n",
        b"LMSG x 99999999999\r\n",
        b"LMSG x 1\r\nabc\r\n",
        b"HMSG x 5 3\r\nabc\r\n",
        b"HMSG x -1 3\r\nabc\r\n",
        b"LMSG x y z 1\r\na\r\n",
        b"LMSG x + r 1\r\na\r\n",
        b"LS+\r\n",
        b"LS+ a b\r\n",
        b"LS+ a b c\r\n",
        b"LS+ a..b\r\n",
        b"LS+ a b 1 2\r\n",
        b"LS- a b c\r\n",
        b"SUB a 1\r\n",
        b"NONSENSE\r\n",
        b"x" * 70_000,
        b"LMSG x 2000000\r\n",
        b"LMSG x\ry 1\r\na\r\n",
        b"LMSG x\x00 1\r\na\r\n",
        b"LMSG x r\x0b 1\r\na\r\n",
        b"LS+ a\x01\r\n",
        b"LS+ a q\x01 1\r\n",
    ],
)
async def test_nonsense_ends_the_link(frame: bytes) -> None:
    link = OneEnd()
    link.conn.feed(frame)
    assert link.conn.closed


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (b"$JS.ACK.S.C.1.7.3.99.0@a.b", b"$JS.ACK.S.C.1.7.3.99.0"),
        (b"$JS.ACK.S@.@C@.1.7.3.99.0@a@b@", b"$JS.ACK.S@.@C@.1.7.3.99.0"),
        (b"$JS.ACK.D.H.S.C.1.7.3.99.0.x@y", b"$JS.ACK.D.H.S.C.1.7.3.99.0.x"),
        (b"$JS.ACK.S.C.1.7.3.99@a.b", b"$JS.ACK.S.C.1.7.3.99@a.b"),
        (b"$JS.ACK.S.C.1.7.3.99.0", b"$JS.ACK.S.C.1.7.3.99.0"),
        (b"$JS.ACK.@", b"$JS.ACK.@"),
        (b"back@home", b"back@home"),
    ],
)
@pytest.mark.parametrize("blank", [b" ", b"  ", b"\t", b" \t "])
async def test_the_subject_behind_an_ack_subject(reply: bytes, kept: bytes, blank: bytes) -> None:
    link = OneEnd()
    link.conn.feed(b"LMSG " + blank.join((b"plain", reply, b"2")) + blank + b"\r\nok\r\n")
    assert link.got == [(b"plain", kept, b"", b"ok")]


async def test_header_blocks_of_any_form_pass() -> None:
    link = OneEnd()
    link.conn.feed(b"HMSG plain 3 3\r\nabc\r\nHMSG plain 0 3\r\nabc\r\n")
    assert link.got == [(b"plain", b"", b"abc", b""), (b"plain", b"", b"", b"abc")]


async def test_random_bytes_never_break_the_node() -> None:
    chance = random.Random(7)
    for _ in range(300):
        link = OneEnd()
        frame = bytearray(STREAM)
        for _ in range(chance.randrange(1, 6)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        at = chance.randrange(len(frame))
        link.conn.feed(bytes(frame[:at]))
        if not link.conn.closed:
            link.conn.feed(bytes(frame[at:]))


async def test_interest_before_the_login_is_refused() -> None:
    kernel = Kernel(asyncio.get_running_loop())
    conn = LeafConn(Session(), kernel, 1, 1 << 20)
    conn.feed(b"LS+ a\r\n")
    assert conn.closed


async def test_what_may_not_come_in_is_dropped() -> None:
    link = OneEnd(Rules(None, [b"plain"]))
    link.conn.feed(STREAM)
    assert link.got == EXPECTED[3:]
    assert link.session.said == [("denied", b"plain")] * 3


async def test_control_lines_overtake_messages_that_wait() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    link = OneEnd()
    link.conn.attach(ours)
    link.conn.feed(b"LS+ bulk\r\n")
    body = b"z" * 1000
    for _ in range(400):
        link.account.send(b"bulk", body)
    link.kernel.turn()
    assert link.conn.pending > 100_000
    link.conn.feed(b"PING\r\n")
    link.kernel.turn()
    link.account.send(b"bulk", b"last")
    link.kernel.turn()
    theirs.setblocking(False)
    received = b""
    while not received.endswith(b"last\r\n"):
        received += await asyncio.wait_for(loop.sock_recv(theirs, 1 << 16), 5)
    assert received.index(b"PONG\r\n") < 100_000
    frame = b"LMSG bulk 1000\r\n" + body + b"\r\n"
    assert received.replace(b"PONG\r\n", b"", 1) == frame * 400 + b"LMSG bulk 4\r\nlast\r\n"
    link.conn.close("Client Closed")
    theirs.close()


async def test_rules_hold_for_acks_and_answers_that_leave() -> None:
    """They come in against any rule, but leave only where the user may have them."""
    link = OneEnd(Rules([b"plain"]))
    link.conn.principal.leaves = Rules([b"plain"])
    link.conn.feed(b"LMSG $JS.ACK.S.C.1 2\r\nin\r\nLS+ $JS.ACK.>\r\nLS+ _R_.>\r\nLS+ plain\r\n")
    assert link.session.said == []
    for subject in (b"$JS.ACK.S.C.1.1.1.1.0", b"_R_.abc.def", b"plain"):
        link.account.send(subject, b"", own=True)
    assert link.conn.pending == len(b"LMSG plain 0\r\n\r\n")


async def test_an_alias_is_no_way_around_a_deny() -> None:
    link = OneEnd()
    link.account.domain_prefix = b"$JS.hub.API."
    link.conn.principal.aliased = Rules(None, [b"$JS.API.STREAM.DELETE.>", b"$KV.secret.>"])
    for subject in (b"STREAM.DELETE.V", b"$KV.secret.k", b"STREAM.INFO.V", b"$KV.open.k"):
        link.conn.feed(b"LMSG $JS.hub.API." + subject + b" 0\r\n\r\n")
    assert [subject for _, subject in link.session.said] == [
        b"$JS.hub.API.STREAM.DELETE.V",
        b"$JS.hub.API.$KV.secret.k",
    ]


async def test_a_message_that_cannot_be_handled_costs_no_other() -> None:
    """A link speaks for many: one request that fails may not end it."""
    link = OneEnd()

    class Failing:
        """A subject mapping that always fails."""

        sources = frozenset()

        def apply(self, subject: bytes) -> bytes:
            if subject == b"grouped":
                raise OverflowError("too large")
            return subject

    link.account.mappings = Failing()
    for cut in (len(STREAM), 70):
        link.got.clear()
        link.conn.feed(STREAM[:cut])
        link.conn.feed(STREAM[cut:])
        assert not link.conn.closed
        assert link.got == [EXPECTED[0], EXPECTED[1], EXPECTED[2], EXPECTED[-1]]


def in_pieces(frame: bytes, size: int) -> list[bytes]:
    """A frame as the pieces of it go out."""
    parts = [frame[at : at + size] for at in range(0, len(frame), size)]
    left = [len(frame) - min((n + 1) * size, len(frame)) for n in range(len(parts))]
    return [
        b"PMSG %09d %06d\r\n%b\r\n" % (rest, len(part), part)
        for rest, part in zip(left, parts, strict=True)
    ]


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_message_comes_in_pieces_with_others_between(size: int) -> None:
    whole = b"HMSG plain back 18 70\r\nNATS/1.0\r\nA: b\r\n\r\n" + b"x\r\n" * 17 + b"y\r\n"
    stream = b"LMSG plain 1\r\n-\r\n".join(in_pieces(whole, size) * 2)
    for step in (1, 3, len(stream)):
        link = OneEnd()
        link.conn.in_pieces = True
        for at in range(0, len(stream), step):
            link.conn.feed(stream[at : at + step])
        large = (b"plain", b"back", b"NATS/1.0\r\nA: b\r\n\r\n", b"x\r\n" * 17 + b"y")
        assert [item for item in link.got if item[3] != b"-"] == [large] * 2
        assert len(link.got) == 2 + stream.count(b"LMSG plain 1\r\n")
        assert not link.conn.closed and not link.conn.midway


@pytest.mark.parametrize(
    "stream",
    [
        b"PMSG 0\r\n",
        b"PMSG 0 x\r\n\r\n",
        b"PMSG 0 0\r\n\r\n",
        b"PMSG -1 1\r\nL\r\n",
        b"PMSG 000000000 000002\r\nLMxx",
        b"PMSG 5 2\r\nLM\r\nPMSG 5 2\r\nSG\r\n",
        b"PMSG 5 2\r\nLM\r\nPMSG 2 2\r\nSG\r\n",
        b"PMSG 0 14\r\nLMSG plain 1\r\n\r\n",
        b"PMSG 0 6\r\nPING\r\n\r\n",
        b"PMSG 0 18\r\nLMSG plain 0\r\n\r\n++\r\n",
        b"PMSG 0 32\r\nLMSG plain 0\r\n\r\nLMSG plain 0\r\n\r\n\r\n",
        b"PMSG 0 29\r\nPMSG 0 16\r\nLMSG plain 0\r\n\r\n\r\n\r\n",
        b"PMSG 999999999 999999\r\n",
    ],
)
async def test_pieces_that_make_no_frame_end_the_link(stream: bytes) -> None:
    link = OneEnd()
    link.conn.in_pieces = True
    link.conn.feed(stream)
    assert link.conn.closed
    assert len(link.got) <= 1


async def test_pieces_of_a_peer_that_did_not_announce_them_end_the_link() -> None:
    link = OneEnd()
    link.conn.feed(in_pieces(b"LMSG plain 1\r\nx\r\n", 5)[0])
    assert link.conn.closed
