"""States of groups on their way between nodes: read in parts here, or put together from parts.

A leader reads its store part by part, as a member takes them. A member keeps what arrives in a
stream that does not count; with the end the state takes the place of the old one, in one step.
Each part is durable before it is answered, so no more waits for the disk than what is on its way.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.raft.model.message import Message
from headwater.hub.raft.model.snapshot import Wanted
from headwater.hub.raft.progress import State
from headwater.hub.raft.raft import Raft
from headwater.hub.stored.arrival import Arrival
from headwater.hub.stored.replica import Replica
from headwater.hub.stored.sending import END, Sending
from headwater.hub.stored.state_end import Gaps

ARRIVALS_MAX = 8
"""States that arrive on a node at a time; others wait for their turn."""
IDLE_SECONDS = 10.0
"""Without a part, after which a state that arrives gives up its turn, and keeps what it has."""
TELL_SECONDS = 5.0
"""Between two lines of the log on one state."""

log = logging.getLogger("headwater.raft")


@dataclass(frozen=True)
class TransferStatus:
    """How far a state is on its way to a member."""

    share: float
    """From 0 to 1."""
    seconds_left: float
    """About, at the pace so far."""


class Transfers:
    """Of a `GroupStore`. `make` gives an empty stream for a group that does not count yet; `touch`
    is called when a group has something to say."""

    def __init__(
        self,
        node: NodeStore,
        replicas: dict[int, Replica],
        make: Callable[[int], FileStore],
        touch: Callable[[Raft], None],
    ) -> None:
        self.node = node
        self.log: CommitLog = node.log
        self.replicas = replicas
        self.arrivals: dict[int, Arrival] = {}
        self.name_of: Callable[[int], str] = "group {}".format
        """What a group is of, for people; whoever owns the groups knows it."""
        self._make = make
        self._touch = touch
        self._sendings: dict[int, dict[int, Sending]] = {}
        """By group, and by the member that gets it."""

    def _now(self) -> float:
        return float(self.node.kernel.loop.time())

    # -- the leader -------------------------------------------------------------

    def send(self, raft: Raft, wanted: Wanted) -> None:
        """Give a member the next part of the state, as far as it can be read."""
        session = (raft.term, wanted.session)
        sendings = self._sendings.setdefault(raft.group, {})
        sending = sendings.get(wanted.node)
        if sending is None or sending.session != session:
            sending = sendings[wanted.node] = Sending(
                session, self.replicas[raft.group], self._now(), self._meta_of
            )
        try:
            part = sending.part(wanted.position, raft.options.snapshot_part_bytes)
        except StoreError as error:
            log.debug("%s cannot give its state now: %s", self.name_of(raft.group), error)
            return
        if part is not None:
            raft.send_part(wanted, part)
            self._touch(raft)

    def held(self, raft: Raft) -> int | None:
        """The index behind which a member will need entries, when it has the state that is on its
        way; None when none is. What is no more sent is let go of."""
        found = None
        sendings = self._sendings.get(raft.group)
        if sendings is None:
            return None
        for node, sending in list(sendings.items()):
            progress = raft.progress.get(node) if raft.is_leader else None
            if progress is None or progress.state is not State.SNAPSHOT:
                del sendings[node]
                continue
            if sending.snapshot is not None:
                index = sending.snapshot.index
                found = min(index, found or index)
        if not sendings:
            del self._sendings[raft.group]
        return found

    def status(self, raft: Raft, node: int) -> TransferStatus | None:
        """How far the state is on its way to a member; None when it is not sent one."""
        sending = self._sendings.get(raft.group, {}).get(node)
        progress = raft.progress.get(node)
        if sending is None or progress is None or progress.state is not State.SNAPSHOT:
            return None
        whole = max(self._whole(sending), 1)
        done, first = min(max(progress.position, 0), whole), min(max(sending.first, 0), whole)
        seconds = self._now() - sending.begun
        left = seconds * (whole - done) / max(done - first, 1)
        return TransferStatus(done / whole, left)

    def _meta_of(self, store: FileStore) -> bytes:
        return self.node.meta_of(store) or b""

    def _whole(self, sending: Sending) -> int:
        store = sending.replica.store
        return int(store.last_seq) if store is not None else 0

    def arrived(self, group: int) -> float:
        """Which share of a group's state has arrived here; 1 when none is on its way."""
        arrival = self.arrivals.get(group)
        if arrival is None or not arrival.whole:
            return 1.0
        return min(arrival.position / arrival.whole, 1.0)

    # -- a member ---------------------------------------------------------------

    def keep(self, raft: Raft, m: Message) -> None:
        """Keep a part, and answer when it is durable."""
        group = raft.group
        arrival = self._arrival(group)
        if arrival is None or arrival.complete:
            return
        arrival.heard = self._now()
        position = arrival.position
        try:
            ends = arrival.keep(m)
        except StoreError as error:
            self._refuse(raft, m, arrival, error)
            return
        if ends:
            self._arrived(raft, m, arrival)
        elif position < END and arrival.position != position < END:
            self._log_progress(raft, m, arrival)
            reached = arrival.position
            lsn = self.log.hand_over()
            self.log.when_durable(lsn, lambda: self._confirm_part(raft, m, arrival, reached))
        else:
            lost = arrival.fresh and m.offset > arrival.position
            raft.part_kept(m, arrival.position, lost)
            self._touch(raft)

    def _arrival(self, group: int) -> Arrival | None:
        """What has arrived of a group's state; None while others have their turn."""
        found = self.arrivals.get(group)
        late = self._now() - IDLE_SECONDS
        busy = [n for n, each in self.arrivals.items() if each.heard > late and n != group]
        if len(busy) >= ARRIVALS_MAX:
            return None
        if found is None:
            found = Arrival(
                self.log, lambda: self._make(group), self._now(), self.node.update_meta
            )
            self.arrivals[group] = found
        return found

    def _confirm_part(self, raft: Raft, m: Message, arrival: Arrival, position: int) -> None:
        if self.arrivals.get(raft.group) is arrival and not arrival.complete:
            raft.part_kept(m, position)
            self._touch(raft)

    def _refuse(self, raft: Raft, m: Message, arrival: Arrival, error: StoreError) -> None:
        """Storage takes nothing now, or what came is no state: the leader goes back to what is
        here. It sends rows again by itself."""
        log.debug("the state of %s waits: %s", self.name_of(raft.group), error)
        if isinstance(error, Gaps):
            log.warning(
                "%s: the state that another node sent is incomplete (%s): this node drops it and "
                "asks for it again; nothing that was acknowledged is lost",
                self.name_of(raft.group),
                error,
            )
            self.drop(raft.group)
        elif m.config is None:
            return
        raft.part_kept(m, 0 if isinstance(error, Gaps) else arrival.position, lost=True)
        self._touch(raft)

    def _arrived(self, raft: Raft, m: Message, arrival: Arrival) -> None:
        """The whole state is here."""
        store = arrival.store
        assert store is not None
        if not raft.snapshot_arrived(m):
            self.drop(raft.group)
        elif arrival.bytes:
            seconds = max(self._now() - arrival.begun, 0.001)
            log.info(
                "%s: the state has arrived: %d messages, %.1f MB, in %.1f s",
                self.name_of(raft.group),
                store.messages,
                arrival.bytes / 1e6,
                seconds,
            )
        self._touch(raft)

    def _log_progress(self, raft: Raft, m: Message, arrival: Arrival) -> None:
        """Log how far it is, not too often."""
        now = self._now()
        if now - arrival.logged < TELL_SECONDS or not m.commit:
            return
        arrival.logged = now
        done, seconds = arrival.position / m.commit, now - arrival.begun
        log.info(
            "%s: %.0f %% of the state has arrived from another node (%.1f MB), about %.0f s "
            "are left",
            self.name_of(raft.group),
            100 * done,
            arrival.bytes / 1e6,
            seconds * (1 - done) / max(done, 1e-9),
        )

    def forget(self, group: int) -> None:
        """The group is not here any more: nothing of it is sent, or arrives."""
        self._sendings.pop(group, None)
        self.drop(group)

    def drop(self, group: int) -> None:
        """Forget what has arrived of a group's state: it is not needed, or not right."""
        arrival = self.arrivals.pop(group, None)
        if arrival is not None and arrival.store is not None and not arrival.store.closed:
            self.discard(group, arrival.store)

    def discard(self, group: int, store: FileStore) -> None:
        """Remove a stream that was to be a group's, and counts nowhere."""
        try:
            self.node.delete_stream(store)
        except StoreError as error:
            # The next start removes it.
            log.debug("what is here of %s stays for now: %s", self.name_of(group), error)
