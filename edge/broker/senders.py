"""Who has much waiting for a link: requests and answers go ahead of what others send in bulk.

What clients publish has no mark that tells a chunk of an object from a request. Their amounts do:
who has more than 16 KiB waiting sends bulk, and all that it sends until this has gone stays behind
it. So what one sender publishes keeps its order, whatever its subjects.
"""

import cython

# So many senders are remembered without a look at who has nothing waiting any more.
REMEMBERED = cython.declare(cython.Py_ssize_t, 1024)


@cython.cclass
class Sender:
    """What one connection has waiting for a link."""


@cython.cclass
class Senders:
    """Those whose messages met others that waited for one link."""

    def __init__(self):
        self.known = {}
        self.bound = REMEMBERED

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def in_bulk(
        self,
        cid: cython.ulonglong,
        size: cython.Py_ssize_t,
        ahead: cython.Py_ssize_t,
        queued: cython.longlong,
        sent: cython.longlong,
    ) -> cython.bint:
        """Whether the next message of a connection, `size` bytes, goes with the bulk.

        `ahead` is what waits before all bulk, in bytes; of the bulk, `queued` bytes have come since
        the link is there, and `sent` of them have gone.
        """
        sender: Sender = self.find(cid, sent)
        if sender.until <= sent:
            sender.ahead = min(sender.ahead, ahead) + size
            if sender.ahead <= AHEAD_MAX:
                return False
        sender.ahead = 0
        sender.until = queued + 1
        return True

    @cython.cfunc
    def find(self, cid: cython.ulonglong, sent: cython.longlong) -> Sender:
        """What is known of a connection."""
        sender: Sender
        if self.last is not None and self.last_cid == cid:
            return self.last
        sender = self.known.get(cid)
        if sender is None:
            if len(self.known) >= self.bound:
                self.forget(sent)
            self.known[cid] = sender = Sender()
        self.last = sender
        self.last_cid = cid
        return sender

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def forget(self, sent: cython.longlong) -> cython.int:
        """Forget those whose bulk has gone."""
        kept: dict = {}
        for cid, item in self.known.items():
            if cython.cast(Sender, item).until > sent:
                kept[cid] = item
        self.known = kept
        self.last = None
        self.bound = max(REMEMBERED, 2 * len(kept))
        return 0
