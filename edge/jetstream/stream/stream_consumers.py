"""The consumers of a stream, and what its retention keeps for them.

With interest retention a stream stores what some consumer's filter matches, and keeps it until
every such consumer has acknowledged it. A work queue keeps a message until one has, and each mirror
and source has copied it. Any other stream only tells its consumers what is new and what is gone.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.jetstream.stream.stream_observer import StreamObserver
from cython.cimports.headwater.edge.kernel.kernel import Kernel
from cython.cimports.headwater.edge.subjects.tokens import subject_matches

from headwater.edge.subjects.tokens import covers


def filters_of(consumer: Any) -> list[bytes]:
    """The patterns that a consumer wants."""
    config = consumer.config
    if config.filter_subjects:
        return [subject.encode() for subject in config.filter_subjects]
    return [config.filter_subject.encode() or b">"]


@cython.cclass
class StreamConsumers:
    """The consumers of one stream, by name. `on_unneeded` is called when they may need fewer of its
    messages, and those are to be dropped."""

    def __init__(self, kernel: Kernel, on_unneeded: Callable[[], None]):
        self.kernel = kernel
        self.on_unneeded = on_unneeded
        self.by_name = {}
        self.hidden = set()
        self.observers = []
        self.patterns = ()

    def configure(self, retention: str) -> None:
        """Act on a checked configuration from now on."""
        self.by_interest = retention == "interest"
        self.work_queue = retention == "workqueue"
        self.stale = True

    # --- which there are ---------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name]

    def get(self, name: str) -> Any:
        """A consumer, None when there is none of that name."""
        return self.by_name.get(name)

    def values(self) -> Collection[Any]:
        """All consumers."""
        return self.by_name.values()

    def items(self) -> Collection[tuple[str, Any]]:
        """All consumers, with their names."""
        return self.by_name.items()

    @property
    def visible(self) -> int:
        """How many there are but for those of mirrors and sources (`direct`)."""
        return len(self.by_name) - len(self.hidden)

    def in_order(self) -> list:
        """The names of those, sorted. Whoever lists thousands asks for one page after the other."""
        if self.order is None:
            self.order = sorted(name for name in self.by_name if name not in self.hidden)
        return self.order

    def add(self, consumer: Any) -> None:
        """Enter a consumer."""
        self.by_name[consumer.name] = consumer
        self.order = None
        if consumer.config.direct:
            self.hidden.add(consumer.name)
        else:
            self.hidden.discard(consumer.name)
        self.changed()

    def remove(self, name: str) -> None:
        """Take a consumer out, if it is there; what only it held back may leave the stream."""
        self.by_name.pop(name, None)
        self.hidden.discard(name)
        self.order = None
        self.changed()

    def clear(self) -> None:
        """Take all out, of a stream that ends. `observers` stays: no ack that is under way drops
        a message because nobody needs it."""
        self.by_name.clear()
        self.hidden.clear()
        self.order = None

    def changed(self) -> None:
        """Learn that consumers, or what they want, are not what they were."""
        self.stale = True
        if self.drops_unneeded():
            self.on_unneeded()

    @cython.cfunc
    def listed(self) -> list:
        """The consumers, looked at again only after a change: there may be thousands, made one
        after the other."""
        wanted: list = []
        if self.stale:
            self.stale = False
            self.observers = list(self.by_name.values())
            self.copied = self.work_queue and any(
                consumer.config.direct or consumer.config.sourcing for consumer in self.observers
            )
            if self.by_interest:
                for consumer in self.observers:
                    wanted.extend(filters_of(consumer))
            self.patterns = (b">",) if b">" in wanted else tuple(wanted)
        return self.observers

    # --- what they hear ----------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def wake(self) -> cython.int:
        """Have every consumer look for something to deliver."""
        for item in self.listed():
            self.kernel.schedule(cython.cast(StreamObserver, item))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def removed(self, sequence: cython.ulonglong) -> cython.int:
        """Tell every consumer that a message is gone."""
        for item in self.listed():
            cython.cast(StreamObserver, item).removed(sequence)
        return 0

    def purged(self, subject: bytes, store: Any) -> None:
        """Have every consumer look at what a purge of a subject has left, as nats-server does: who
        wants only of that subject goes on with its next message, who wants others as well where the
        stream begins."""
        left = store.next_matching(store.filter((subject,)), store.first_seq) or store.last_seq + 1
        for item in self.listed():
            filters = filters_of(item)
            if all(covers(subject, wanted) for wanted in filters):
                item.purged(left)
            elif any(covers(wanted, subject) or covers(subject, wanted) for wanted in filters):
                item.purged(store.first_seq)
            else:
                item.purged(0)

    # --- what they want ----------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def drops_unneeded(self) -> cython.bint:
        """Whether the stream drops a message that no consumer needs."""
        return self.by_interest and not self.doubtful

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def unwanted(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        """Whether a new message is not to be stored: by interest, and no filter matches it."""
        pattern: bytes
        if not self.by_interest:
            return False
        if self.stale:
            self.listed()
        for item in self.patterns:
            pattern = cython.cast(bytes, item)
            if subject_matches(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(pattern)),
                PyBytes_GET_SIZE(pattern),
                subject,
                n,
            ):
                return False
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def need(self, sequence: cython.ulonglong) -> cython.bint:
        """Whether some consumer has still to acknowledge `sequence`."""
        for item in self.listed():  # noqa: SIM110 - a generator would cost an object per call
            if cython.cast(StreamObserver, item).needs(sequence):
                return True
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def let_go(self, sequence: cython.ulonglong) -> cython.bint:
        """Whether `sequence`, which a consumer is done with, has to leave the stream."""
        if self.work_queue:
            self.listed()
            return not (self.copied and self.need(sequence))
        return self.drops_unneeded() and not self.need(sequence)
