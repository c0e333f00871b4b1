"""Interest in the deliver subjects of push consumers: one watcher per account for all of them."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.jetstream.consumer.delivery import Delivery
from cython.cimports.headwater.edge.kernel.kernel import Sink
from cython.cimports.headwater.edge.subjects.tokens import is_literal, subject_matches

# One per account that has push consumers; taken away with the last of them.
_watches: dict = {}


@cython.cclass
class InterestWatch:
    """Tells push consumers when interest in their deliver subjects comes and goes."""

    account: Account
    by_subject: dict
    subjects: dict

    def __init__(self, account: Account):
        self.account = account
        self.by_subject = {}
        self.subjects = {}

    def add(self, consumer: Delivery) -> None:
        """Watch for a consumer."""
        subject: bytes = consumer.deliver_subject
        self.by_subject.setdefault(subject, []).append(consumer)
        self.subjects[consumer] = subject

    def drop(self, consumer: Delivery) -> None:
        """Stop watching for a consumer."""
        subject = self.subjects.pop(consumer, None)
        if subject is None:
            return
        left = [other for other in self.by_subject[subject] if other is not consumer]
        if left:
            self.by_subject[subject] = left
        else:
            del self.by_subject[subject]
        if not self.subjects:
            self.account.drop_watcher(self)
            _watches.pop(self.account, None)

    def interest_added(self, sink: Sink) -> None:
        """The account has one more sink."""
        self.changed(sink)

    def interest_removed(self, sink: Sink) -> None:
        """The account has one sink less."""
        self.changed(sink)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def changed(self, sink: Sink) -> cython.int:
        """Tell the consumers whose deliver subject the sink's pattern matches."""
        pattern: bytes = sink.subject
        text: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(pattern))
        n: cython.Py_ssize_t = PyBytes_GET_SIZE(pattern)
        subject: bytes
        if is_literal(text, n):
            for item in self.by_subject.get(pattern, ()):
                cython.cast(Delivery, item).interested()
            return 0
        for subject in list(self.by_subject):
            if subject_matches(
                text,
                n,
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject)),
                PyBytes_GET_SIZE(subject),
            ):
                for item in self.by_subject.get(subject, ()):
                    cython.cast(Delivery, item).interested()
        return 0


def watch(account: Account, consumer: Delivery) -> InterestWatch:
    """Watch the deliver subject of a consumer; `drop` ends it."""
    found: InterestWatch = _watches.get(account)
    if found is None:
        found = InterestWatch(account)
        _watches[account] = found
        account.add_watcher(found)
    found.add(consumer)
    return found
