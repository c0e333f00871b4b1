"""Makes the streams of this node what the meta state says of them.

A stream with one replica is an ordinary one of this node. What has more is handed to the groups of
streams. Nothing is deleted but what an operation named by its incarnation: a stream that the state
does not know is told to the leader, which takes it in, or is kept and not served.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterator
from typing import Any, Protocol

import msgspec

from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.consumer.consumer_recovery import make_again
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.progress import kept_configs
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.storage.format.errors import StoreError
from headwater.hub.meta.assignment import NO_GROUP, Assignment, Gone, Member, Operation
from headwater.hub.meta.starts import PUT_BACK_STREAM
from headwater.hub.meta.state import MetaState
from headwater.hub.stored.causes import Causes

log = logging.getLogger("headwater.meta")

AGAIN_SECONDS = (1.0, 30.0)
"""Until what storage did not take is tried again: first, and at most; each pause is twice the one
before."""
EMPTIED = "the node that had it was emptied; restore it, or delete it"


class Groups(Protocol):
    """The replicated streams of a node; see `headwater.hub.streams`."""

    def start(self, assignment: Assignment) -> None:
        """Be a replica of a stream that is new, or go on with what is here of it."""

    def change(self, assignment: Assignment) -> None:
        """A stream that is here has another configuration or other replicas."""

    def delete(self, assignment: Assignment, for_good: bool = False) -> None:
        """Remove what is here of a stream: `for_good`, or because it has left this node."""

    def delete_gone(self, gone: Container[str]) -> None:
        """Remove what is here of streams whose incarnations were deleted."""

    def concerns(self, assignment: Assignment) -> bool:
        """Whether something of a stream is here that the group needs, though it is to go."""

    def has_left(self, number: int) -> bool:
        """Whether the group of a stream has taken this node out."""

    def remake(self, number: int) -> None:
        """Begin again with nothing, as a member that the group takes in anew."""


class Applier:
    """Follows the meta state on one node."""

    def __init__(self, jetstream: NodeJetStream, state: MetaState, number: int) -> None:
        self.jetstream = jetstream
        self.state = state
        self.number = number
        self.groups: Groups | None = None
        self.emptied = False
        """This node's store was new when it joined, and it has not caught up: what it is said to
        have is lost, and not made again."""
        self.put_back = False
        """This node's folder is an older copy: streams that were there before this start, and are
        not, are lost and not made again."""
        self.judged: Callable[[], bool] = lambda: True
        """Whether it would be known by now that the folder is an older copy."""
        self._unsure: set[str] = set()
        """Incarnations of streams that wait for that."""
        self.boot = 0
        """Number of this start of the node."""
        self.on_joined: Callable[[], None] = lambda: None
        """Called when the cluster knows that this node begins with nothing."""
        self.lost: dict[str, Assignment] = {}
        """Streams that the leader is to be told of as lost, by incarnation; as they are to be."""
        self.began_ns = jetstream.kernel.clock()
        self.done: dict[str, int] = {}
        """By incarnation: the version that is in force here."""
        self.failed: dict[str, JetStreamError] = {}
        """By incarnation: why a stream is not here though it should be."""
        self.unknown: dict[str, Stream] = {}
        """Streams of this node that the state does not know, by incarnation."""
        self.delays = Causes()
        """Streams that storage does not let be made or removed here, by incarnation, and why."""
        self._again: dict[str, tuple[float, float]] = {}
        """By incarnation: when that is tried again, in seconds of the loop, and the pause."""
        self._unremoved: dict[str, Assignment] = {}
        """Deleted streams whose group storage does not let be removed here, by incarnation."""
        self._leftovers: dict[str, Stream] = {}
        """Streams that have ended here, and whose data storage does not let be removed."""
        self._unswept = False
        """What is here of streams that were deleted meanwhile could not be removed."""
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._ending: dict[str, asyncio.Future[None]] = {}
        """Deletions that are not durable yet."""

    # -- what is here -------------------------------------------------------------

    def local(self, assignment: Assignment) -> Stream | None:
        """The stream as it lives on this node."""
        js = self.jetstream.accounts.get(assignment.account)
        found = js.streams.get(assignment.name) if js is not None else None
        return found if found is not None and found.incarnation == assignment.incarnation else None

    def streams(self) -> Iterator[tuple[AccountJetStream, Stream]]:
        """All streams that live here."""
        for js in list(self.jetstream.accounts.values()):
            for stream in list(js.streams.values()):
                yield js, stream

    # -- following ----------------------------------------------------------------

    def operation_applied(self, operation: Operation, before: Assignment | None) -> None:
        """An operation was applied to the state: act on it. `before` is what was known."""
        if isinstance(operation, Assignment):
            self.reconcile(operation, new=operation.version == 0)
        elif isinstance(operation, Gone):
            self.remove(before)
        elif isinstance(operation, Member):
            self._joined(operation)

    def _joined(self, member: Member) -> None:
        """What is placed here from now on is known not to be here yet."""
        if self.emptied and (member.number, member.boot) == (self.number, self.boot):
            self.emptied = False
            self.on_joined()

    def reconcile_all(self) -> None:
        """The whole state may be new: make everything right."""
        for known in list(self.state.streams.values()):
            self.reconcile(known.assignment, new=False)
        if self.number in self.state.members:
            self._joined(self.state.members[self.number])
        if self.groups is not None:
            self._sweep()
        self.find_unknown()

    def find_unknown(self) -> None:
        """Look for streams of this node that the state does not know, and end those it deleted."""
        self.unknown.clear()
        for js, stream in self.streams():
            if stream.incarnation in self.state.gone:
                self._delete(js, stream)
                continue
            known = self.state.stream(js.name, stream.name)
            if known is None or known.assignment.incarnation != stream.incarnation:
                self.unknown[stream.incarnation] = stream

    def reconcile(self, assignment: Assignment, *, new: bool) -> None:
        """Make one stream what it should be here."""
        self.unknown.pop(assignment.incarnation, None)
        if self._is_unsure(assignment):
            self._unsure.add(assignment.incarnation)
            return
        try:
            if assignment.lost:
                if self.number in assignment.peers:
                    raise errors.STREAM_OFFLINE_REASON.error(err=assignment.lost)
            elif assignment.group != NO_GROUP:
                self._reconcile_group(assignment)
            elif self.number in assignment.peers:
                self._reconcile_single(assignment, new)
            else:
                self._end(assignment)
        except (JetStreamError, StoreError, OSError) as error:
            self._fail(assignment, error)
        else:
            self.done[assignment.incarnation] = assignment.version
            self.failed.pop(assignment.incarnation, None)
            self._over(*_named(assignment))
        self._wake_waiters(assignment.incarnation)

    def _fail(self, assignment: Assignment, error: Exception) -> None:
        """A stream is not what it should be here; what storage refused is tried again."""
        of_storage = not isinstance(error, JetStreamError) or isinstance(
            error.__cause__, StoreError | OSError
        )
        if of_storage:
            self._try_later(*_named(assignment), error)
        else:
            log.error(
                "stream '%s > %s' is not as assigned on this node: %s; it is not served here: mend "
                "that, and start the node again",
                *assignment.key,
                error,
            )
        if not isinstance(error, JetStreamError):
            error = errors.STREAM_GENERAL_ERROR.error(err=error)
        self.failed[assignment.incarnation] = error

    # -- what storage refused -----------------------------------------------------

    def _try_later(self, incarnation: str, key: tuple[str, str], error: Exception) -> None:
        first, last = AGAIN_SECONDS
        _, before = self._again.get(incarnation, (0.0, 0.0))
        pause = min(2 * before, last) or first
        self._again[incarnation] = (self.jetstream.kernel.loop.time() + pause, pause)
        if self.delays.is_news(incarnation, str(error)):
            log.error(
                "stream '%s > %s' is not as assigned on this node: %s; it is tried again: look at "
                "this node's disk",
                *key,
                error,
            )

    def _over(self, incarnation: str, key: tuple[str, str]) -> None:
        """Nothing of a stream waits for storage any more."""
        self._again.pop(incarnation, None)
        self._unremoved.pop(incarnation, None)
        self._leftovers.pop(incarnation, None)
        if self.delays.over(incarnation):
            log.info("stream '%s > %s' is as assigned on this node now", *key)

    def try_again(self, now: float) -> None:
        """Try what storage refused and is due; `now` are seconds of the loop. Called each
        second."""
        if self._unswept:
            self._sweep()
        for incarnation, (due, _) in list(self._again.items()):
            if due <= now:
                self._try(incarnation)

    def _try(self, incarnation: str) -> None:
        if incarnation in self._unremoved:
            self._remove_group(self._unremoved[incarnation])
            return
        if incarnation in self._leftovers:
            self._remove_data(self._leftovers[incarnation])
            return
        known = (each.assignment for each in self.state.streams.values())
        wanted = next((each for each in known if each.incarnation == incarnation), None)
        if wanted is not None:
            self.reconcile(wanted, new=False)
        else:
            self._over(incarnation, ("", ""))

    def _sweep(self) -> None:
        """Remove what is here of groups of streams that were deleted while this node was away."""
        assert self.groups is not None
        try:
            self.groups.delete_gone(self.state.gone)
            kept_configs.sweep(self.jetstream.store().log, self.state.gone)
            self._unswept = False
        except (StoreError, OSError) as error:
            if not self._unswept:
                log.error("deleted streams are not removed yet (%s): it is tried again", error)
            self._unswept = True

    def _reconcile_group(self, assignment: Assignment) -> None:
        if self.groups is None:
            raise errors.CLUSTER_UN_SUPPORT_FEATURE.error()
        if assignment.incarnation in self.done:
            self.groups.change(assignment)
        elif self.number in assignment.peers or self.groups.concerns(assignment):
            self.groups.start(assignment)

    def leave_groups(self, now: float) -> None:
        """Remove what is here of streams whose group has taken this node out. Where it is wanted
        again meanwhile, it begins again: to the group its old incarnation is over. `now` are
        seconds of the loop."""
        if self.groups is None:
            return
        for known in list(self.state.streams.values()):
            assignment = known.assignment
            if assignment.group == NO_GROUP or not self.groups.has_left(assignment.group):
                continue
            if self._again.get(assignment.incarnation, (0.0, 0.0))[0] > now:
                continue
            stays = self.number in assignment.peers
            try:
                if stays:
                    self.groups.remake(assignment.group)
                else:
                    self.groups.delete(assignment)
            except (StoreError, OSError) as error:
                self._try_later(*_named(assignment), error)
                continue
            self._over(*_named(assignment))
            what = "comes back to" if stays else "has left"
            log.info("stream '%s > %s' %s this node", *assignment.key, what)

    def _reconcile_single(self, assignment: Assignment, new: bool) -> None:
        if self.jetstream.rests(assignment.account):
            # It is looked at again when the account has JetStream.
            return
        js = self.jetstream.account_js(assignment.account)
        config = assignment.stream_config
        stream = js.streams.get(assignment.name)
        if stream is not None and stream.incarnation != assignment.incarnation:
            self._give_way(js, stream)
            stream = None
        if stream is None:
            self._refuse_lost(assignment)
            if new:
                js.check_reservation(config, None)
            stream_lifecycle.create(js, config, assignment.incarnation, assignment.created_ns)
            made = js.streams[assignment.name]
            if config.storage == "memory":
                make_again(made)
            self.jetstream.advisories.stream_action(made, "create")
            return
        changed = stream.config != config
        if changed:
            stream_lifecycle.update(js, stream, config)
        known = self.done.get(assignment.incarnation, assignment.version)
        if changed or assignment.version > known:
            self.jetstream.advisories.stream_action(stream, "modify")

    def _is_unsure(self, assignment: Assignment) -> bool:
        """Whether a stream was placed here before this start and is not here, so that it is not yet
        to be made: this node's folder may be an older copy."""
        return (
            assignment.group == NO_GROUP
            and assignment.peers == [self.number]
            and self._was_here(assignment)
            and self.local(assignment) is None
            and not (assignment.lost or self.emptied or self.judged())
        )

    def _was_here(self, assignment: Assignment) -> bool:
        """Whether this node's storage is to have a stream since before this start."""
        stored = assignment.stream_config.storage == "file"
        return stored and assignment.created_ns < self.began_ns

    def be_sure(self) -> None:
        """Make what waited until it would be known that this node's folder is an older copy."""
        if not self._unsure or not self.judged():
            return
        waiting, self._unsure = self._unsure, set()
        for known in list(self.state.streams.values()):
            if known.assignment.incarnation in waiting:
                self.reconcile(known.assignment, new=False)

    def _refuse_lost(self, assignment: Assignment) -> None:
        """Raise JetStreamError when this node is to have a stream that it has lost."""
        why = EMPTIED if self.emptied else ""
        if self.put_back and self._was_here(assignment):
            why = PUT_BACK_STREAM
        if why:
            self.lost[assignment.incarnation] = msgspec.structs.replace(
                assignment, lost=why, version=assignment.version + 1
            )
            raise errors.STREAM_OFFLINE_REASON.error(err=why)

    def _give_way(self, js: AccountJetStream, stream: Stream) -> None:
        """A stream has the name of another one that the cluster knows."""
        if stream.incarnation in self.state.gone:
            self._delete(js, stream)
            return
        log.error(
            "stream '%s > %s' of this node is kept and not served: the cluster has another one of "
            "that name; stop the node and use `headwater store backup`, then restore it by another",
            js.name,
            stream.name,
        )
        stream_lifecycle.abandon(js, stream.name)

    def _end(self, assignment: Assignment) -> None:
        """The stream is on other nodes now."""
        stream = self.local(assignment)
        if stream is None:
            kept_configs.forget_stream(self.jetstream.store().log, assignment.incarnation)
        else:
            js = self.jetstream.account_js(assignment.account)
            log.info("stream '%s > %s' has left this node", js.name, stream.name)
            self._delete(js, stream, moved=True)

    def remove(self, gone: Assignment | None) -> None:
        """A stream is deleted for good."""
        if gone is None:
            return
        stream = self.local(gone)
        self._over(*_named(gone))
        if gone.group != NO_GROUP and self.groups is not None:
            self._remove_group(gone)
        elif stream is not None:
            self._delete(self.jetstream.account_js(gone.account), stream)
        self.unknown.pop(gone.incarnation, None)
        self.done.pop(gone.incarnation, None)
        self.failed.pop(gone.incarnation, None)
        self._wake_waiters(gone.incarnation)

    def _remove_group(self, gone: Assignment) -> None:
        """Remove what is here of a deleted stream's group. Entries of the meta group do not wait
        until storage lets it be removed: the deletion is committed."""
        assert self.groups is not None
        try:
            self.groups.delete(gone, for_good=True)
        except (StoreError, OSError) as error:
            self._unremoved[gone.incarnation] = gone
            self._try_later(*_named(gone), error)
        else:
            self._over(*_named(gone))

    def _delete(self, js: AccountJetStream, stream: Stream, moved: bool = False) -> None:
        if js.streams.get(stream.name) is not stream:
            return
        try:
            self._watch_end(stream, js.delete(stream, moved))
        except (StoreError, OSError) as error:
            self._leave_data(stream, error)

    def _leave_data(self, stream: Stream, error: Exception) -> None:
        self._leftovers[stream.incarnation] = stream
        self._try_later(stream.incarnation, (stream.account.name, stream.name), error)

    def _remove_data(self, stream: Stream) -> None:
        """Remove the data of a stream that has ended."""
        try:
            self._watch_end(stream, self.jetstream.delete_store(stream))
        except (StoreError, OSError) as error:
            self._leave_data(stream, error)
        else:
            self._over(stream.incarnation, (stream.account.name, stream.name))

    def _watch_end(self, stream: Stream, durable: Awaitable[None] | None) -> None:
        if durable is not None:
            task = self._ending[stream.incarnation] = asyncio.ensure_future(durable)
            task.add_done_callback(lambda done: self._ended(stream.incarnation, done))

    def _ended(self, incarnation: str, task: "asyncio.Future[None]") -> None:
        self._ending.pop(incarnation, None)
        if not task.cancelled() and task.exception() is not None:
            log.error(
                "the removal of stream %s is not durable: %s; the next start may find it, and "
                "ends it",
                incarnation,
                task.exception(),
            )

    # -- waiting ------------------------------------------------------------------

    def _wake_waiters(self, incarnation: str) -> None:
        for future in self._waiting.pop(incarnation, ()):
            if not future.done():
                future.set_result(None)

    async def made(self, incarnation: str, version: int) -> None:
        """Return when a version of a stream is in force here. Raises JetStreamError when it cannot
        be."""
        while self.done.get(incarnation, -1) < version:
            if incarnation in self.failed:
                raise self.failed[incarnation]
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(incarnation, []).append(future)
            await future

    async def ended(self, incarnation: str) -> None:
        """Return when a stream is deleted here."""
        while incarnation not in self.state.gone:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(incarnation, []).append(future)
            await future
        if incarnation in self._ending:
            await asyncio.wait([self._ending[incarnation]])


def _named(assignment: Assignment) -> tuple[str, tuple[str, str]]:
    return assignment.incarnation, assignment.key
