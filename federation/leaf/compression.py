"""Compression of links: which mode two ends agree on, and what then goes over the wire.

The INFO of the end that was dialled names its mode. A dialler that compresses answers with an INFO
that names its own, and from then on both directions are S2 streams; the other end's next INFO is
the first thing in its own. Each end compresses as it is set, so the modes may differ (NATS leaf
node and route protocols).
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from headwater.edge.conf.options import CompressionOptions
from headwater.edge.jetstream.model import plain_frames, s2
from headwater.edge.jetstream.model.s2 import Buffer
from headwater.edge.wire.s2_blocks import encode_block

OFF = "off"
ACCEPT = "accept"
AUTO = "s2_auto"
PLAIN = "s2_uncompressed"
FAST = "s2_fast"
BETTER = "s2_better"
BEST = "s2_best"

_NAMES = {
    "": OFF, "not supported": OFF, "not_supported": OFF, "disabled": OFF, "false": OFF,
    "auto": AUTO, "enabled": AUTO, "on": AUTO, "true": AUTO,
    "fast": FAST, "better": BETTER, "best": BEST,
}  # fmt: skip
MODES = (OFF, ACCEPT, AUTO, FAST, BETTER, BEST)
PEER_MODES = (*MODES, PLAIN)
_LEVELS = (PLAIN, FAST, BETTER, BEST)

LOGIN_MAX = 1 << 17
"""Bytes of content that are accepted before the login: INFO and CONNECT, with long claims."""

READ_MAX = 1 << 26
"""Bytes of content that one read may bring: nobody compresses messages sixty-fold."""

AT_ONCE = 1 << 20
"""Bytes of content that are handed on before others have their turn: as one read without
compression brings."""

RTT_THRESHOLDS_S = (0.010, 0.050, 0.100)
"""Round trips up to which `s2_auto` does not compress, is fast, and better; beyond, best."""

FAST_LINE = 12_500_000
"""Bytes a second, 100 Mbit/s: a PING that waits behind so much tells nothing of the distance, and
compressing would take longer than the line."""

LEAST_RTT_S = 1e-9
"""A round trip for which `s2_auto` compresses as little as its thresholds let it."""


def normal(mode: str) -> str:
    """A mode as it is configured or told, in the one way that it is named here."""
    lower = mode.lower()
    return _NAMES.get(lower, lower)


def normal_options(options: CompressionOptions) -> CompressionOptions:
    """The same with the mode's one name."""
    return msgspec.structs.replace(options, mode=normal(options.mode))


def agreed(own: str, peer: str, rtt: float, thresholds: "list[float]") -> str:
    """The mode of this end, OFF if nothing is to be compressed. Raises ValueError for a peer's mode
    that is unknown."""
    if peer not in PEER_MODES:
        raise ValueError(f"unsupported compression mode {peer!r}")
    if OFF in (own, peer) or own == peer == ACCEPT:
        return OFF
    if own == ACCEPT:
        return FAST if peer == AUTO else peer
    return by_rtt(rtt, thresholds) if own == AUTO else own


def by_rtt(rtt: float, thresholds: "list[float]") -> str:
    """What `s2_auto` means for a round trip of so many seconds; a threshold of 0 leaves out its
    mode."""
    steps = thresholds or list(RTT_THRESHOLDS_S)
    for level, most in zip(_LEVELS, steps, strict=False):
        if rtt <= most:
            return level
    return _LEVELS[3] if len(steps) >= 3 else _LEVELS[len(steps) - 1]


class S2Filter:
    """Stands between a link and its wire, or between it and TLS."""

    def __init__(self, mode: str, inner: Any = None, plain: int = 0) -> None:
        """`inner` is the filter next to the wire, None without; the first `plain` bytes that are
        sent do not belong to the stream."""
        self.trusted = False
        """Whether the peer has logged in."""
        self.passed = 0
        """Bytes in both directions, compressed."""
        self._inner = inner
        self._plain = plain
        self._reader = s2.FrameReader()
        self._reader.room = LOGIN_MAX
        self._blocks: Iterator[Buffer] = iter(())
        """What is left of a read, inflated frame by frame."""
        self._untaken = memoryview(b"")
        self.more = False
        """Whether `receive(b"")` gives more, without anything having come."""
        self._begun = False
        self.tune(mode)

    def tune(self, mode: str) -> None:
        """Compress in that mode what is sent from now on."""
        self._encode = (
            None if mode == PLAIN else partial(encode_block, thorough=mode in (BETTER, BEST))
        )

    def room_for(self, n: int, first: int) -> int:
        """The most content that a read of `n` bytes, of which `first` is one, completes; 0 when it
        is for `receive`."""
        if self._inner is not None or not self.trusted or self.more or self._untaken:
            return 0
        return self._reader.plain_room(n, first)

    def receive_onto(self, to: memoryview, data: memoryview) -> tuple[int, int]:
        """Copy what came uncompressed to `to`, which has the room that `room_for` asked for: the
        bytes that are there now, and those of `data` that are done with. The others are for
        `receive`. Raises ConnectionError when it is no S2 stream."""
        try:
            size, used = self._reader.plain_onto(to, data)
        except s2.FormatError as error:
            raise ConnectionError(f"Read Error: {error}") from error
        self.passed += used
        return size, used

    def receive(self, data: bytes) -> bytes:
        """Protocol bytes in what came, AT_ONCE at a time. Raises ConnectionError when it is no S2
        stream."""
        if data or not self.more:
            data = data if self._inner is None else self._inner.receive(data)
        return self.receive_inner(data)

    def receive_inner(self, data: bytes) -> bytes:
        """The same for what the inner filter has given already."""
        self.passed += len(data)
        if self.trusted and data:
            self._reader.room = READ_MAX
        try:
            return self._next_piece(data)
        except s2.FormatError as error:
            raise ConnectionError(f"Read Error: {error}") from error

    def _next_piece(self, data: bytes) -> bytes:
        """The next AT_ONCE bytes of content, where `data` is what came since. A frame of a few
        bytes may hold 4 MiB. Raises FormatError."""
        if data:
            before: Iterable[Buffer] = self._blocks if self.more else ()
            self._blocks = chain(before, self._reader.blocks(data))
        size = len(self._untaken)
        pieces: list[Buffer] = [self._untaken] if size else []
        while size < AT_ONCE and (block := next(self._blocks, None)) is not None:
            pieces.append(block)
            size += len(block)
        whole = b"".join(pieces)
        # An empty part of a view would keep the whole.
        self._untaken = memoryview(whole)[AT_ONCE:] if size > AT_ONCE else memoryview(b"")
        self.more = size >= AT_ONCE
        return whole[:AT_ONCE] if size > AT_ONCE else whole

    def send(self, data: bytes) -> bytes:
        """Bytes for the wire."""
        plain, data = data[: self._plain], data[self._plain :]
        self._plain -= len(plain)
        if data:
            lead = b"" if self._begun else s2.IDENTIFIER
            self._begun = True
            data = s2.frames(data, self._encode, lead)
        data = plain + data
        self.passed += len(data)
        return data if self._inner is None else bytes(self._inner.send(data))

    def send_onto(self, wire: bytearray, data: memoryview) -> None:
        """The same, behind what is in `wire`; what is not compressed is copied once."""
        if self._encode is not None or self._inner is not None or self._plain or not self._begun:
            wire += self.send(bytes(data))
            return
        before = len(wire)
        plain_frames.wrap_onto(wire, data)
        self.passed += len(wire) - before

    def finish(self, reason: str) -> None:
        """The link ends."""
        if hasattr(self._inner, "finish"):
            self._inner.finish(reason)


def compress(conn: Any, mode: str, line: bytes = b"") -> S2Filter:
    """Have a link speak S2 from now on; `line` is sent before that."""
    if not hasattr(conn.filter, "prove"):
        made = S2Filter(mode, conn.filter, len(line))
        if conn.filter is None:
            conn.use_filter(made)
        else:
            conn.wrap_filter(made)
        conn.queue(line)
    else:
        conn.queue(line)
        conn.pass_queued()
        made = _below_frames(conn, mode)
    return made


def _below_frames(conn: Any, mode: str) -> S2Filter:
    """S2 of what goes through a WebSocket is next to the wire or to TLS, as in nats-server: it
    compresses frames. Who looks into them on the way sees none after the handshake."""
    from headwater.edge.websocket.websocket_filter import FilterStack

    stack = conn.filter
    stacked = isinstance(stack, FilterStack)
    made = S2Filter(mode, stack.outer if stacked else None)
    conn.wrap_filter(FilterStack(made, stack.inner if stacked else stack))
    return made


def deflates(conn: Any) -> bool:
    """Whether a link's WebSocket compresses: then S2 stays off, as in nats-server."""
    return bool(getattr(getattr(conn.filter, "inner", conn.filter), "deflates", False))


def stream_of(conn: Any) -> S2Filter | None:
    """What compresses a link; None if nothing does."""
    found = getattr(conn.filter, "outer", conn.filter)
    return found if isinstance(found, S2Filter) else None


def reset(conn: Any, own: CompressionOptions, mode: str) -> str | None:
    """The mode of a link in `mode` after this end was set anew, or None when both ends have to
    agree again, by another link."""
    if (own.mode == OFF or deflates(conn)) != (mode == OFF):
        return None
    stream = stream_of(conn)
    if own.mode in (OFF, ACCEPT) or stream is None:
        return mode
    if own.mode == AUTO:
        return retuned(conn, own, mode)
    stream.tune(own.mode)
    return own.mode


def passed(conn: Any) -> int:
    """Compressed bytes of a link so far, in both directions; 0 without compression."""
    stream = stream_of(conn)
    return 0 if stream is None else stream.passed


def is_more(mode: str, than: str) -> bool:
    """Whether one of the modes that `s2_auto` stands for compresses more than another."""
    return mode in _LEVELS and than in _LEVELS and _LEVELS.index(mode) > _LEVELS.index(than)


def asked_by(conn: Any, own: CompressionOptions, meanwhile: int) -> str:
    """What `s2_auto` means after a round trip, in which so many bytes passed. Behind bulk on a
    fast line it is the least: its time is no distance, and compressing takes longer than the
    line."""
    crowded = meanwhile * 1e9 > FAST_LINE * conn.rtt_ns
    return by_rtt(LEAST_RTT_S if crowded else conn.rtt_ns / 1e9, own.rtt_thresholds)


def retuned(conn: Any, own: CompressionOptions, mode: str, wanted: str = "") -> str:
    """The mode of a link after a round trip was measured: `s2_auto` goes with it. `wanted` is what
    it means now, when something else than the round trip decides."""
    stream = stream_of(conn)
    if own.mode != AUTO or mode == OFF or not conn.rtt_ns or stream is None:
        return mode
    wanted = wanted or by_rtt(conn.rtt_ns / 1e9, own.rtt_thresholds)
    if wanted != mode:
        stream.tune(wanted)
    return wanted
