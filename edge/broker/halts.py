"""What the two ends of a link between Headwaters ask each other to hold back.

A receiver without room must not stop a link that others use as well. So the link is read on, and
its other end is asked to hold back what that receiver gets: whoever publishes it there waits. What
is asked has a key, an account and, behind a space, a subject that may hold wildcards.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.kernel.kernel import Endpoint, Kernel, Task
from cython.cimports.headwater.edge.subjects.tokens import is_valid, subject_matches

# What a peer is asked to hold back: so many patterns at once, then whole accounts.
HALTS_MAX = cython.declare(cython.Py_ssize_t, 64)
# And so much of it is kept here for a peer that keeps to no such bound: in all, and of an account,
# since each message is compared with all patterns of its account.
HELD_MAX = cython.declare(cython.Py_ssize_t, 1024)
HELD_EACH = cython.declare(cython.Py_ssize_t, 65)
# A longer key is passed over: as long as a client's line may be, unless it is set otherwise.
KEY_MAX = cython.declare(cython.Py_ssize_t, 4096)
# A peer forgets after a while what it was asked, so that a word which went astray costs no more.
# While the receiver still has no room, it is asked again before that.
HELD_S = 10.0
ASK_AGAIN_S = 4.0
# A peer that means harm could hold up its whole account. So it gets into debt by the second while
# it holds something back, and out of it by what passes all the same, at this rate (bytes a second):
# less than any receiver takes that is not cut for being slow.
LEAST_RATE = 16 << 10
# What it owes when it holds no more fades: so many seconds in a second. Beyond `PATIENCE_S` of debt
# it is listened to no more.
FADES = 0.1
PATIENCE_S = 60.0


@cython.cclass
class Gate(Endpoint):
    """Where producers wait for the peer's word that it has room again. It stands open for a while
    after that word, so that what passes then counts for a peer that is watched."""

    def __init__(self, pattern: bytes | None):
        self.pattern = pattern
        self.asked_again = True
        self.shut = False
        self.since_s = 0.0
        self.debt_s = 0.0

    def count_shut(self, now_s: float) -> None:
        """Add the time for which it was shut to what the peer owes."""
        if self.shut:
            self.debt_s += now_s - self.since_s
            self.since_s = now_s
        self.debt_s = max(0.0, self.debt_s)


@cython.cclass
class Halt(Task):
    """The peer holds something back until a receiver of this node has room: it waits there."""

    def __init__(self, link: object, halts: Halts, key: bytes):
        self.link = link
        self.halts = halts
        self.key = key

    def ask(self) -> None:
        """Ask the peer, and ask it again for as long as there is no room."""
        link = self.link
        if self.halts.asked.get(self.key) is self and not link.closed:
            link.session.tell_halt(link, self.key, False)
            self.halts.kernel.loop.call_later(ASK_AGAIN_S, self.ask)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """There is room again."""
        link = self.link
        if self.halts.asked.pop(self.key, None) is not None and not link.closed:
            link.session.tell_halt(link, self.key, True)
        return 0


@cython.cclass
class Halts:
    """What is held back on one link, in both directions. `most` is how many bytes may still come
    while the peer holds back: what was on the way."""

    def __init__(self, kernel: Kernel, most: int):
        self.kernel = kernel
        self.most = most
        self.deaf = False
        self.asked = {}
        self.held = {}
        self.debt_s = 0.0
        self.debt_at_s = 0.0

    # --- this node asks ------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def ask(
        self,
        link: object,
        account: bytes,
        pattern: bytes,
        receiver: Endpoint,
        size: cython.Py_ssize_t,
    ) -> cython.bint:
        """A message of `size` bytes met a receiver without room: ask the peer of `link` to hold
        back what follows, once for as long as that lasts. Whether the peer still may have to learn
        of it; False when more has come than was on the way."""
        halt: Halt = self.asked.get(account)
        key: bytes = account
        if halt is None:
            key = account + b" " + pattern
            halt = self.asked.get(key)
            if halt is None and len(self.asked) >= HALTS_MAX:
                key = account
        if halt is None:
            self.asked[key] = halt = Halt(link, self, key)
            receiver.waiters.append(halt)
            halt.ask()
        halt.met += size
        return halt.met <= self.most

    # --- the peer asks -------------------------------------------------

    def hold(self, key: bytes) -> None:
        """The peer asks that producers of this node wait with such messages for a while. What is
        no key is passed over."""
        account, _, subject = key.partition(b" ")
        pattern: bytes | None = subject or None
        if len(key) > KEY_MAX or pattern is not None and not is_valid(pattern, len(pattern)):
            return
        gates: dict = self.held.get(account, {})
        gate: Gate = gates.get(pattern)
        if self.deaf or gate is None and not self.has_room(account, gates):
            return
        if gate is None:
            gates = self.held.setdefault(account, {})
            gates[pattern] = gate = Gate(pattern)
            self.count += 1
            self.look_later(account, gate)
        gate.count_shut(self.kernel.loop.time())
        gate.asked_again = True
        if not gate.shut:
            gate.shut = True
            gate.since_s = self.kernel.loop.time()

    def has_room(self, account: bytes, gates: dict) -> bool:
        """Whether one more gate may be kept; one that stands open makes room."""
        if len(gates) < HELD_EACH and self.count < HELD_MAX:
            return True
        for gate in gates.values():
            if not gate.shut:
                self.remove(account, gate)
                return True
        return False

    def let_go(self, key: bytes) -> None:
        """The peer has room for such messages again."""
        account, _, pattern = key.partition(b" ")
        gate: Gate = self.held.get(account, {}).get(pattern or None)
        if gate is not None:
            self.open(gate)
            if self.too_long is None:
                self.remove(account, gate)

    def open(self, gate: Gate) -> None:
        """Let producers go on."""
        gate.count_shut(self.kernel.loop.time())
        gate.shut = False
        self.kernel.resume_producers(gate)

    def look_later(self, account: bytes, gate: Gate) -> None:
        """Look after a while what the peer has said since."""
        gate.asked_again = False
        self.kernel.loop.call_later(HELD_S, self.look, account, gate)

    def look(self, account: bytes, gate: Gate) -> None:
        """Hold no more back of what the peer has said nothing more."""
        if self.held.get(account, {}).get(gate.pattern) is not gate:
            return
        gate.count_shut(self.kernel.loop.time())
        if self.too_long is not None and gate.debt_s + self.owed() > PATIENCE_S:
            self.deaf = True
            self.open_all()
            self.too_long()
        elif gate.asked_again:
            self.look_later(account, gate)
        elif gate.shut and self.too_long is not None:
            self.open(gate)
            self.look_later(account, gate)
        else:
            self.open(gate)
            self.remove(account, gate)
        self.kernel.turn()

    def owed(self) -> float:
        """Seconds that the peer owes of what it holds back no more."""
        now_s: float = self.kernel.loop.time()
        return max(0.0, self.debt_s - (now_s - self.debt_at_s) * FADES)

    def remove(self, account: bytes, gate: Gate) -> None:
        """Forget a gate that stands open. Several were shut at the same time: what the peer owes
        grows no faster than time passes."""
        now_s: float = self.kernel.loop.time()
        passed_s = now_s - self.debt_at_s
        self.debt_s = self.owed() + max(0.0, min(gate.debt_s, passed_s))
        self.debt_at_s = now_s
        gates: dict = self.held[account]
        del gates[gate.pattern]
        if not gates:
            del self.held[account]
        self.count -= 1

    @cython.cfunc
    def gate_for(
        self,
        account: bytes,
        subject: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ) -> Gate:
        """Where the producer of a message of `size` bytes for the peer has to wait; None where it
        has not."""
        gate: Gate
        found: Gate = None
        pattern: bytes
        gates: dict = self.held.get(account)
        if gates is None:
            return None
        for item in gates.values():
            gate = cython.cast(Gate, item)
            pattern = gate.pattern
            if pattern is None or subject_matches(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(pattern)),
                PyBytes_GET_SIZE(pattern),
                subject,
                n,
            ):
                gate.debt_s -= cython.cast(cython.double, size) / LEAST_RATE
                if gate.shut:
                    found = gate
        return found

    def end(self) -> None:
        """The link has ended: whoever waits for its peer's word goes on."""
        self.asked.clear()
        self.open_all()

    def open_all(self) -> None:
        """Hold nothing back any more."""
        for gates in self.held.values():
            for gate in gates.values():
                self.open(gate)
        self.held.clear()
        self.count = 0
