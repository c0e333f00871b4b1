"""The kernel of a node: turns of work, endpoints that send, sinks that receive.

A *turn* is everything done for one readiness of a socket, one timer or one commit: parse and
route, run the tasks that were scheduled meanwhile, let storage hand over its batch, and then send
what every touched endpoint has queued. So each endpoint costs one system call per turn, however
many messages it got. The kernel knows no protocol, account or stream.
"""

import logging
from bisect import bisect_right

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.kernel.busy_poll import BusyPoll
from cython.cimports.headwater.edge.kernel.send_crew import PIECES_MAX, Piece, crew_of_process
from cython.cimports.headwater.edge.ports.machine_clock import (
    machine_monotonic_ns,
    machine_wall_ns,
)
from cython.cimports.libc.stdlib import free, malloc

from headwater.edge.ports.ports import SystemRandom

# One read takes at most this much; large enough that a busy publisher costs few turns.
READ_BUFFER_BYTES = 1 << 20
# Wall time that may pass between two looks at the clock before `clock_watch` is called.
WATCH_NS = cython.declare(cython.longlong, 500_000_000)
# Tasks run in one turn before the loop gets to look at its sockets again.
TASK_ROUNDS_MAX = cython.declare(cython.int, 64)
# Sending to so many endpoints, or so many bytes to several, is work for more than one processor.
MANY = cython.declare(cython.Py_ssize_t, 32)
MUCH = cython.declare(cython.Py_ssize_t, 256 << 10)
# A client that was read so often in a row sends alone.
LONE_READS = cython.declare(cython.int, 8)
# A client that sends more at a time does not wait for answers.
SMALL_READ_BYTES = cython.declare(cython.Py_ssize_t, 16 << 10)

log = logging.getLogger("headwater.broker")


@cython.cclass
class Task:
    """Something to run once before the turn ends. `kernel.schedule` takes each at most once."""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        return 0


@cython.cfunc
def run_all(batch: list):
    """Run tasks in order; one that fails is reported and costs no other its turn."""
    task: Task
    for item in batch:
        task = item
        task.scheduled = False
        try:
            task.run()
        except Exception:
            log.exception(
                "task %s failed; the others of this turn go on; report this fault",
                type(item).__name__,
            )


@cython.cclass
class StagedTasks(Task):
    """Tasks in the order of their stages, which `turn_order.py` declares; itself a task that runs
    all of them. A change made by one that runs holds from the next run on."""

    def __init__(self):
        self.tasks = []
        self.stages = []

    def add(self, task: Task, stage: int) -> None:
        """Run `task` after those of lower stages, and those of its own that are there. One that
        is there moves."""
        self.remove(task)
        index = bisect_right(self.stages, stage)
        self.tasks = [*self.tasks[:index], task, *self.tasks[index:]]
        self.stages.insert(index, int(stage))

    def remove(self, task: Task) -> None:
        """Run `task` no more; nothing happens when it is not there."""
        for index in range(len(self.tasks)):
            if self.tasks[index] is task:
                self.tasks = self.tasks[:index] + self.tasks[index + 1 :]
                del self.stages[index]
                return

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        run_all(self.tasks)
        return 0


@cython.cclass
class Endpoint(Task):
    """Where messages come from and bytes go to: a connection, or the node itself.

    As a Task it is resumed: a producer that was paused because a receiver was slow is scheduled
    when that receiver has sent enough.
    """

    def __cinit__(self):
        self.kind = KIND_INTERNAL
        self.waiters = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def push(self) -> cython.int:
        """Send what is queued, as far as the socket takes it."""
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def offer(self, piece: cython.pointer(Piece)) -> cython.bint:
        """Whether what is queued may be sent by anyone, as `piece` then says; `push` follows."""
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count_sent(self, n: cython.Py_ssize_t) -> cython.int:
        """So many bytes of what was offered have been sent."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def collect(self, sink: Sink) -> cython.int:
        """Remember a remote sink for the message being routed; True when it is the first."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def emit(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Queue the message once for everything collected."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may_reach(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether a message may be given to a member of a queue group behind this endpoint."""
        return True


@cython.cclass
class Sink:
    """A receiver of the messages of one subject pattern."""

    def __init__(self, subject: bytes, queue: bytes | None = None):
        self.subject = subject
        self.queue = queue
        self.weight = 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Take a message; 1 when it was taken, 0 when this sink cannot (closed, denied, echo)."""
        return 0


@cython.cclass
class CallbackSink(Sink):
    """A sink in interpreted Python, for services and API handlers.

    `callback(subject, reply, headers, payload, sender)` gets bytes; what it raises is logged. When
    it returns False, it has left the message.
    """

    def __init__(self, subject: bytes, callback: object, queue: bytes | None = None):
        Sink.__init__(self, subject, queue)
        self.callback = callback

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        if self.closed:
            return 0
        self.delivered += 1
        try:
            answer: object = self.callback(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len),
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)
                if m.reply_len
                else b"",
                PyBytes_FromStringAndSize(body, m.header_len) if m.header_len else b"",
                PyBytes_FromStringAndSize(body + m.header_len, m.size - m.header_len),
                sender,
            )
        except Exception:
            log.exception(
                "service on %r failed; its request gets no answer; report this fault", self.subject
            )
            return 1
        return 0 if answer is False else 1


@cython.cfunc
@cython.exceptval(check=False)
def is_much(endpoints: list) -> cython.bint:
    """Whether sending what these have queued is work for several processors."""
    queued: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = len(endpoints)
    if count < 2 or count >= MANY:
        return count >= MANY
    for item in endpoints:
        queued += cython.cast(Endpoint, item).pending
    return queued >= MUCH


@cython.cclass
class Kernel:
    """The turns of one node, on one event loop. Not thread-safe: only the loop's thread enters.

    It gives the node its ports: `loop` for timers, `wall_ns`, `monotonic_ns`, and `chance`.
    """

    def __init__(self, loop: object, time_source: object = None, chance: object = None):
        """`time_source` is a `Clock` of `headwater.edge.ports.ports`, `chance` a `Random`; None is
        the machine's."""
        self.loop = loop
        self.time_source = time_source
        self.chance = chance if chance is not None else SystemRandom()
        self.dirty = []
        self.arrived = cython.NULL
        self.arrived_by = None
        self.arrived_from = b""
        self.tasks = []
        self.later = []
        self.turn_hooks = StagedTasks()
        self.busy_poll = BusyPoll()
        self.now_ns = self.wall_ns()
        self.random_state = cython.cast(cython.ulonglong, self.chance.below(1 << 64)) | 1

    def __cinit__(self, *args):
        self.read_capacity = READ_BUFFER_BYTES
        self.read_buffer = cython.cast(cython.p_uchar, malloc(READ_BUFFER_BYTES))
        if self.read_buffer == cython.NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.read_buffer)

    @cython.ccall
    @cython.exceptval(-1)
    def wall_ns(self) -> cython.longlong:
        """The time now, ns since the epoch."""
        return machine_wall_ns() if self.time_source is None else self.time_source.wall_ns()

    @cython.ccall
    @cython.exceptval(-1)
    def monotonic_ns(self) -> cython.longlong:
        """The clock of deadlines, ns since any moment: what the loop's timers go by."""
        if self.time_source is None:
            return machine_monotonic_ns()
        return self.time_source.monotonic_ns()

    @cython.cfunc
    @cython.exceptval(-1)
    def fresh_ns(self) -> cython.longlong:
        """`wall_ns`, kept as `now_ns`. `clock_watch` hears of it when it is not soon after the
        last time: after a pause, or because the clock was set."""
        now: cython.longlong = self.wall_ns()
        passed: cython.longlong = now - self.watched_ns
        self.now_ns = self.watched_ns = now
        if (passed < 0 or passed > WATCH_NS) and self.clock_watch is not None:
            self.clock_watch()
        return now

    @cython.cfunc
    @cython.exceptval(-1)
    def arrival_ns(self) -> cython.longlong:
        """When a message came in: of those that were read at once, when the first was looked at."""
        if not (self.reading and self.stamped):
            self.fresh_ns()
            self.stamped = self.reading
        return self.now_ns

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def queue_send(self, endpoint: Endpoint) -> cython.int:
        """Have `endpoint.push` called at the end of this turn."""
        if not endpoint.dirty:
            endpoint.dirty = True
            self.dirty.append(endpoint)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def schedule(self, task: Task) -> cython.int:
        """Have `task.run` called before this turn ends (or in the next turn, from outside)."""
        if not task.scheduled:
            task.scheduled = True
            self.tasks.append(task)
            if not self.turning:
                self.kick()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def schedule_later(self, task: Task) -> cython.int:
        """Have `task.run` called in the next turn, after the loop has looked at its sockets."""
        if not task.scheduled:
            task.scheduled = True
            self.later.append(task)
            self.kick()
        return 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def resume_producers(self, receiver: Endpoint) -> cython.int:
        """Schedule every producer that was paused because of `receiver`."""
        paused: list = receiver.waiters
        if paused:
            receiver.waiters = []
            for task in paused:
                self.schedule(cython.cast(Task, task))
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def random(self) -> cython.ulonglong:
        """Next of a xorshift sequence, for picks that need no secrecy."""
        x: cython.ulonglong = self.random_state
        x ^= x << 13
        x ^= x >> 7
        x ^= x << 17
        self.random_state = x
        return x

    @cython.ccall
    def kick(self):
        """Ask for a turn soon, from code that runs outside of one."""
        if not self.kicked:
            self.kicked = True
            self.loop.call_soon(self.kicked_turn)

    def kicked_turn(self):
        self.kicked = False
        self.turn()

    def source(self) -> object:
        """The `ports.Clock` that this kernel goes by; None is the machine's."""
        return self.time_source

    def clock(self) -> int:
        """Refresh and return `now_ns`."""
        return self.fresh_ns()

    def add_turn_hook(self, task: Task, stage: int) -> None:
        """Run `task` at the end of every turn, at a `TurnStage`, before anything is sent."""
        self.turn_hooks.add(task, stage)

    def remove_turn_hook(self, task: Task) -> None:
        """Run `task` at the end of turns no more."""
        self.turn_hooks.remove(task)

    def post(self, task: Task) -> None:
        """`schedule` for interpreted callers."""
        self.schedule(task)

    @cython.ccall
    def turn(self):
        """Finish a turn: tasks, turn hooks, sends. Entered once per readiness, timer or commit."""
        rounds: cython.int = 0
        batch: list
        if self.turning:
            return
        self.turning = True
        try:
            self.fresh_ns()
            if self.later:
                self.tasks.extend(self.later)
                self.later = []
            while True:
                while self.tasks and rounds < TASK_ROUNDS_MAX:
                    rounds += 1
                    batch = self.tasks
                    self.tasks = []
                    run_all(batch)
                run_all(self.turn_hooks.tasks)
                if not self.dirty:
                    break
                self.send_dirty()
                if not self.tasks or rounds >= TASK_ROUNDS_MAX:
                    break
        finally:
            self.turning = False
            if self.tasks or self.dirty:
                self.kick()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send_dirty(self) -> cython.int:
        """Have every touched endpoint send; many of them with the help of other processors."""
        batch: list = self.dirty
        endpoint: Endpoint
        self.dirty = []
        if is_much(batch):
            self.send_shared(batch)
        for item in batch:
            endpoint = item
            endpoint.dirty = False
            endpoint.answered = True
            endpoint.push()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send_shared(self, batch: list) -> cython.int:
        """Have others help to send what sockets take at once. Each endpoint is pushed all the same:
        for errors, for what is left, and for who waits."""
        pieces: cython.pointer(Piece)
        endpoint: Endpoint
        offered: list
        at: cython.Py_ssize_t = 0
        i: cython.int
        count: cython.int
        if self.crew is None:
            self.crew = crew_of_process()
        pieces = self.crew.claim()
        if pieces == cython.NULL:
            return 0
        try:
            while at < len(batch):
                offered = []
                count = 0
                while at < len(batch) and count < PIECES_MAX:
                    endpoint = batch[at]
                    at += 1
                    if endpoint.offer(cython.address(pieces[count])):
                        offered.append(endpoint)
                        count += 1
                self.crew.share(count)
                for i in range(count):
                    if pieces[i].sent > 0:
                        endpoint = offered[i]
                        endpoint.count_sent(pieces[i].sent)
        finally:
            self.crew.release()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def turn_of_read(
        self, reader: Endpoint, size: cython.Py_ssize_t, at_ns: cython.longlong
    ) -> cython.int:
        """`turn` after one read of a connection, `size` bytes at that monotonic time. What the
        turn left in `after_read` runs when it is over and everything was sent, outside of a turn.
        """
        task: Task
        looking: cython.bint = (
            self.busy_poll.fd >= 0
            and reader.answered
            and reader.kind == KIND_CLIENT
            and 0 < size <= SMALL_READ_BYTES
        )
        if looking:
            self.busy_poll.arrived(at_ns)
        reader.answered = False
        if reader.cid != self.reader:
            self.reader = reader.cid
            self.reads = 0
        elif self.reads < LONE_READS:
            self.reads += 1
        self.lone = self.reads == LONE_READS and reader.kind == KIND_CLIENT
        try:
            self.turn()
        finally:
            self.lone = False
            task = self.after_read
            if task is not None:
                self.after_read = None
                task.run()
        if looking and not self.kicked:
            self.busy_poll.look()
        return 0
