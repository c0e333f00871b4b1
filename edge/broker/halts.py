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


@cython.cclass
class Gate(Endpoint):
    """Where producers wait for the peer's word that it has room again."""

    def __init__(self, pattern: bytes | None):
        self.pattern = pattern
        self.asked_again = True


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
        self.asked = {}
        self.held = {}

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
        if gate is not None:
            gate.asked_again = True
        if gate is not None or len(gates) >= HELD_EACH or self.count >= HELD_MAX:
            return
        gates[pattern] = gate = Gate(pattern)
        self.held[account] = gates
        self.count += 1
        self.look_later(key, gate)

    def let_go(self, key: bytes) -> None:
        """The peer has room for such messages again."""
        account, _, pattern = key.partition(b" ")
        gates: dict = self.held.get(account, {})
        gate: Gate = gates.pop(pattern or None, None)
        if gate is None:
            return
        if not gates:
            del self.held[account]
        self.count -= 1
        self.kernel.resume_producers(gate)

    def look_later(self, key: bytes, gate: Gate) -> None:
        """Look after a while whether the peer has asked again for what is held back."""
        gate.asked_again = False
        self.kernel.loop.call_later(HELD_S, self.look, key, gate)

    def look(self, key: bytes, gate: Gate) -> None:
        """Hold no more back of what the peer has said nothing more."""
        account = key.partition(b" ")[0]
        if self.held.get(account, {}).get(gate.pattern) is not gate:
            return
        if gate.asked_again:
            self.look_later(key, gate)
        else:
            self.let_go(key)
            self.kernel.turn()

    @cython.cfunc
    def gate_for(
        self, account: bytes, subject: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> Gate:
        """Where the producer of a message for the peer has to wait; None where it has not."""
        gate: Gate
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
                return gate
        return None

    def end(self) -> None:
        """The link has ended: whoever waits for its peer's word goes on."""
        self.asked.clear()
        for account, gates in list(self.held.items()):
            for pattern in list(gates):
                self.let_go(account if pattern is None else account + b" " + pattern)
