"""Writes consumers' progress to the node's commit log: one record per changed consumer and turn.

It runs before the log hands its batch over, so that what a turn delivered and what was acknowledged
in it become durable together with the data. How soon that is, and whether the answers to acks wait
for it or only for the write, is the stream's durability.

Some consumers are saved at most once in `PAUSE_S` instead: see `consumer_saving`.
"""

import logging

import cython
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.jetstream.progress.consumer import Consumer
from cython.cimports.headwater.edge.jetstream.replication.replicator import Replicator
from cython.cimports.headwater.edge.kernel.kernel import Kernel, Task
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog

from headwater.edge.storage.format.errors import StoreError, broken

PAUSE_S = 0.25
"""Between two times that consumers which are saved now and then are."""

log = logging.getLogger("headwater.jetstream")


@cython.cclass
class Answers(Task):
    """Answers to acks that wait for one batch of the log to be durable, or written, with
    what is told behind them."""

    owed: list

    def __init__(self):
        self.owed = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """Send them: the batch is safe."""
        for account, owed in self.owed:
            if isinstance(owed, tuple):
                cython.cast(Account, account).send(owed[0], owed[1])
            else:
                cython.cast(Account, account).send(owed, b"")
        self.owed = []
        return 0


@cython.cclass
class Saver(Task):
    """Saves what changed at the end of every turn. `unsaved` is filled by the consumers."""

    log: CommitLog
    kernel: Kernel
    unsaved: list
    now_and_then: list
    """As `unsaved`, of those that are saved when `timer` ends."""
    timer: object
    """None while `now_and_then` waits for nothing."""
    failing: set
    """(owner, key) of consumers whose progress could not be saved, and that this was told."""

    def __init__(self, log: CommitLog, kernel: Kernel):
        self.log = log
        self.kernel = kernel
        self.unsaved = []
        self.now_and_then = []
        self.timer = None
        self.failing = set()

    def use(self) -> list:
        """The list that consumers enter themselves in."""
        return self.unsaved

    def use_now_and_then(self) -> list:
        """The list of those that are saved at most once in `PAUSE_S`."""
        return self.now_and_then

    def _pause_ends(self) -> None:
        """What was put off is saved in the next turn."""
        self.timer = None
        self.unsaved.extend(self.now_and_then)
        self.now_and_then.clear()
        if self.unsaved:
            self.kernel.kick()

    def save_all(self) -> None:
        """Save everything that changed, also what was put off."""
        self.unsaved.extend(self.now_and_then)
        self.now_and_then.clear()
        self.run()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """Save every consumer that changed in this turn."""
        batch: list
        consumer: Consumer
        answers: Answers = Answers()
        early: Answers = Answers()
        owed: list
        lsn: cython.ulonglong = 0
        if self.now_and_then and self.timer is None:
            self.timer = self.kernel.loop.call_later(PAUSE_S, self._pause_ends)
        if not self.unsaved:
            return 0
        batch = self.unsaved[:]
        self.unsaved.clear()
        for item in batch:
            consumer = item
            consumer.dirty = False
            if not consumer.key:
                continue
            try:
                lsn = self.save(consumer)
            except StoreError as error:
                self.failed(consumer, error)
                continue
            if self.failing:
                self.failing.discard((consumer.owner, consumer.key))
            if consumer.replies and consumer.stream.replicator is not None:
                waiting: Answers = Answers()
                for subject in consumer.replies:
                    waiting.owed.append((consumer.account, subject))
                consumer.replies = []
                consumer.stream.replicator.when_durable(lsn, waiting)
            if consumer.replies:
                owed = early.owed if consumer.stream.store.acks_written else answers.owed
                for subject in consumer.replies:
                    owed.append((consumer.account, subject))
                consumer.replies = []
        if answers.owed:
            self.log.when_durable(lsn, answers)
        if early.owed:
            self.log.when_written(lsn, early)
        return 0

    def failed(self, consumer: Consumer, error: StoreError) -> None:
        """Progress could not be saved: the whole state is written as soon as it can be."""
        consumer.stale = True
        if consumer.delta is not None:
            consumer.delta.drain(cython.address(consumer.at))
        key = (consumer.owner, consumer.key)
        if key not in self.failing:
            self.failing.add(key)
            log.error(
                "progress of consumer '%s' of stream '%s' is not saved: %s; it is tried again, "
                "and a "
                "crash before that would have it deliver again what was acknowledged since",
                consumer.name,
                consumer.stream.name,
                error,
            )

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def save(self, consumer: Consumer) -> cython.ulonglong:
        """Write a consumer's progress; returns the log sequence number. Raises StoreError."""
        data: bytes
        delay_ns: cython.longlong = consumer.stream.store.sync_delay_ns
        group: Replicator = consumer.stream.replicator
        unsound: str = consumer.unsound()
        if unsound is not None:
            broken(unsound)
        if group is not None:
            if consumer.stale or group.is_long(consumer.key):
                consumer.stale = False
                consumer.delta.drain(cython.address(consumer.at))
                return group.put_state(consumer.owner, consumer.key, consumer.save_whole())
            data = consumer.delta.drain(cython.address(consumer.at))
            return group.add_delta(consumer.owner, consumer.key, data)
        if consumer.stale:
            consumer.stale = False
            data = consumer.save_whole()
            return self.log.put_state(consumer.owner, consumer.key, data, delay_ns)
        data = consumer.delta.drain(cython.address(consumer.at))
        return self.log.add_delta(consumer.owner, consumer.key, data, delay_ns)
