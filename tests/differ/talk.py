"""A raw connection to one server: bytes out, frames in."""

import contextlib
import time

from tests.dial import dial
from tests.differ.frames import Frame, frames

QUIET_S = 0.08
"""After so long without a frame, a connection that answers no PING is taken as silent."""

LATE_S = 2.0
"""So long a server may take when the other one has answered already."""


class Talk:
    """One connection; `closed` once the server has ended it."""

    def __init__(self, port: int) -> None:
        self.socket = dial(port, 5)
        self.buffer = bytearray()
        self.closed = False
        self.silent = False
        """True once a PING stayed without an answer: the parser waits for something else."""
        self.seen: list[Frame] = []
        self.pongs = 0

    def send(self, data: bytes, cuts: list[int]) -> None:
        """Send in as many packets as `cuts` say."""
        begin = 0
        for cut in [*cuts, len(data)]:
            if cut > begin and not self.closed:
                # A server may have ended the connection already; what it said is still read.
                with contextlib.suppress(OSError):
                    self.socket.sendall(data[begin:cut])
            begin = cut

    def read(self, seconds: float) -> bool:
        """Wait for something; False when nothing came."""
        if self.closed:
            return False
        self.socket.settimeout(seconds)
        try:
            data = self.socket.recv(1 << 18)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self.closed = True
            self.seen.append(Frame("<closed>"))
            return True
        self.buffer += data
        for frame in frames(self.buffer):
            if frame.verb == "PONG":
                self.pongs += 1
            if frame.verb != "PING":
                self.seen.append(frame)
        return True

    def until_pong(self, wanted: int, seconds: float) -> bool:
        """Read until that many PONGs came; False when it stays silent, or ends."""
        end = time.monotonic() + seconds
        while self.pongs < wanted and not self.closed:
            if not self.read(max(0.001, end - time.monotonic())) and time.monotonic() >= end:
                return False
        return self.pongs >= wanted

    def until_messages(self, wanted: int, seconds: float) -> None:
        """Read until that many messages came since `take`, or nothing comes for so long."""
        while sum(frame.message for frame in self.seen) < wanted and self.read(seconds):
            pass

    def until_quiet(self) -> None:
        """Read until nothing comes."""
        while self.read(QUIET_S):
            pass

    def take(self) -> list[Frame]:
        """The frames since the last call."""
        seen, self.seen = self.seen, []
        return seen

    def close(self) -> None:
        """End it."""
        self.socket.close()


def settle(ours: Talk, theirs: Talk) -> None:
    """Both sides of a connection have answered what was sent so far, or do not answer."""
    pair = (ours, theirs)
    if all(one.closed for one in pair):
        return
    wanted = [one.pongs + 1 for one in pair]
    for one in pair:
        one.send(b"PING\r\n", [])
    if ours.silent or theirs.silent:
        for one in pair:
            one.until_quiet()
        return
    done = [one.until_pong(n, QUIET_S) for one, n in zip(pair, wanted, strict=True)]
    if any(done) or any(one.closed for one in pair):
        done = [one.until_pong(n, LATE_S) for one, n in zip(pair, wanted, strict=True)]
    if len(ours.seen) != len(theirs.seen):
        # One side has answered less so far: the PONG was that of an earlier PING.
        for one in pair:
            one.until_quiet()
    for one, answered in zip(pair, done, strict=True):
        one.silent = not answered and not one.closed
