"""Replicas of a node are compared with the others', and made again when they are not the same.

A leader asks its followers for digests of one slice of a stream after the other. A replica with a
damaged message, or one that a majority contradicts, is emptied and gets everything from the others,
as soon as these can do without it. A leader of that kind first lets another node lead; its
consumers wait meanwhile, since the next leader has what is damaged here.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any

from headwater.edge.storage.format.errors import StoreError
from headwater.hub.cluster.transport import CallFailed, Transport
from headwater.hub.node.spreading import ready_to_lead
from headwater.hub.raft.model.errors import RaftError
from headwater.hub.streams.replica_digest import (
    Rows,
    differing,
    odd_ones,
    pack,
    rows_of,
    unpack,
)
from headwater.hub.streams.stream_group import StreamGroup
from headwater.hub.streams.stream_groups import StreamGroups

SLICE = 200
"""Messages of one question."""
REST_SECONDS = 0.1
"""Between two questions: 2,000 messages a second at most."""
PASS_SECONDS = 600.0
"""Between the end of a pass over all streams that are led here, and the next one."""
AGAIN_SECONDS = 10.0
"""Until a leader asks again that another node should lead, and a follower that it may go."""
HALT_SECONDS = 60.0
"""That consumers wait for another leader; then they pass over what is damaged."""
WAIT_SECONDS = 1.0
"""That a follower may take to have applied what the leader has."""
POLL_SECONDS = 0.02
RANGE = struct.Struct("<QQQQ")
"""Group, entries applied, first sequence, and the one behind the last."""
GROUP = struct.Struct("<Q")
END = struct.Struct("<QQ")
"""Of an answer: entries applied, and the last sequence then."""
LAST = 0
"""In digests the place of the last sequence: no message has this one."""
YES, NO = b"1", b"0"

log = logging.getLogger("headwater.cluster")


class Healing:
    """Of one node. `tell(assignment)` says on an advisory that a replica is made again."""

    def __init__(
        self, groups: StreamGroups, transport: Transport, tell: Callable[[Any], None]
    ) -> None:
        self.groups = groups
        self.transport = transport
        self.tell = tell
        self.pass_seconds = PASS_SECONDS
        self.hurt: dict[int, str] = {}
        """By group: what is wrong with the replica here."""
        self.remade = 0
        """Replicas of this node that were made again since its start."""
        self.compared = 0
        """Messages whose digests were compared."""
        self._asked: dict[int, float] = {}
        self._halted: dict[int, float] = {}
        self._next_pass = 0.0
        self._passing = False
        self._tasks: set[asyncio.Task[None]] = set()
        transport.methods.update(digest=self._digest, heal=self._may_go, remake=self._ordered)

    def numbers(self) -> dict[str, int]:
        """Samples of /metrics."""
        return {
            "replicas_hurt": len(self.hurt),
            "replicas_remade": self.remade,
            "messages_compared": self.compared,
        }

    def stop(self) -> None:
        """No more questions."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- damage ---------------------------------------------------------------

    def on_damage(self, store: Any) -> None:
        """A message was found damaged, amid a read of it."""
        for group in self.groups.groups.values():
            stream = group.stream
            if stream is not None and stream.store is store and others(group):
                self._halt(group, asyncio.get_running_loop().time())

    def _halt(self, group: StreamGroup, now: float) -> None:
        number, stream = group.wanted.group, group.stream
        if stream is None or number in self._halted:
            return
        self._halted[number] = now
        for consumer in stream.consumers.values():
            consumer.halted = True

    def tick(self, now: float) -> None:
        """Look at everything, once a second; `now` are monotonic seconds."""
        for number, group in list(self.groups.groups.items()):
            store = group.replica.store if number in self.groups.driver.store.replicas else None
            if store is None or store.closed or not store.lost or not others(group):
                self.hurt.pop(number, None)
                self._halted.pop(number, None)
                continue
            if number not in self.hurt:
                count = len(store.lost)
                self.hurt[number] = f"{group.name}: {count} messages are damaged on this node"
                log.warning("%s; they are fetched from another node", self.hurt[number])
            self._mend(number, group, now)
        if not self._passing and now >= self._next_pass:
            self._passing = True
            self._spawn(self._pass())

    def _mend(self, number: int, group: StreamGroup, now: float) -> None:
        raft = group.raft
        if raft is None:
            return
        if raft.is_leader:
            self._halt(group, now)
            if now - self._halted.get(number, now) > HALT_SECONDS:
                self._give_in(group)
        if now - self._asked.get(number, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        if raft.is_leader:
            self._asked[number] = now
            self._let_lead(number, group)
        elif raft.leader:
            self._asked[number] = now
            self._spawn(self._ask_to_go(number, raft.leader))

    def _let_lead(self, number: int, group: StreamGroup) -> None:
        """Another node is to lead, since this one's replica is to be made again."""
        raft = group.raft
        ready = ready_to_lead(raft) if raft is not None else []
        if ready:
            try:
                self.groups.transfer(number, ready[0])
            except RaftError as error:
                log.debug("%s: %s", group.name, error)

    def _give_in(self, group: StreamGroup) -> None:
        """No other node leads: consumers pass over what is damaged."""
        stream = group.stream
        if stream is None:
            return
        for consumer in stream.consumers.values():
            consumer.halted = False
        stream.passed_over()

    # -- made again -----------------------------------------------------------

    async def _ask_to_go(self, number: int, leader: int) -> None:
        try:
            if await self.transport.call(leader, "heal", GROUP.pack(number)) == YES:
                self._remake(number)
        except CallFailed as error:
            log.debug("the replica of group %d is not made again now: %s", number, error)

    def _may_go(self, sender: int, body: bytes) -> bytes:
        """A follower asks whether the others can do without it."""
        group = self.groups.groups.get(*GROUP.unpack(body))
        return YES if group is not None and can_spare(group, sender) else NO

    def _ordered(self, sender: int, body: bytes) -> bytes:
        """The leader has found that the replica here is another than the others."""
        (number,) = GROUP.unpack(body)
        group = self.groups.groups.get(number)
        if group is None or group.raft is None or group.raft.leader != sender:
            raise CallFailed("that node does not lead it")
        self._remake(number)
        return YES

    def _remake(self, number: int) -> None:
        group = self.groups.groups.get(number)
        if group is None or group.raft is None or group.raft.is_leader:
            return
        log.warning("%s: its replica on this node is damaged, and is made again", group.name)
        wanted = group.wanted
        try:
            self.groups.remake(number)
        except (StoreError, OSError) as error:
            log.error("%s: its replica cannot be made again: %s; tried again", group.name, error)
            return
        self.remade += 1
        self.tell(wanted)

    # -- digests --------------------------------------------------------------

    async def _pass(self) -> None:
        try:
            for number in list(self.groups.groups):
                await self._compare(number)
        finally:
            self._passing = False
            self._next_pass = asyncio.get_running_loop().time() + self.pass_seconds

    async def _compare(self, number: int) -> None:
        """Compare all of one stream that is led here."""
        at = 1
        while True:
            group = self.groups.groups.get(number)
            stream = group.stream if group is not None else None
            if group is None or stream is None or stream.store.lost or at > stream.store.last_seq:
                return
            at = await self._compare_slice(group, at)
            await asyncio.sleep(REST_SECONDS)

    async def _compare_slice(self, group: StreamGroup, first: int) -> int:
        """Returns where the next slice begins."""
        end = first
        suspects: set[int] = set()
        for look in range(2):
            stream = group.stream
            if stream is None:
                return end
            last = int(stream.store.last_seq)
            before, end = rows_of(stream.store, first, last + 1, SLICE)
            found = await self._ask(group, first, end, last)
            if group.stream is not stream:
                return end
            now, _ = rows_of(stream.store, first, end, SLICE)
            before[LAST] = now[LAST] = last
            odd = differing(before, now, found)
            wrong = odd_ones(self.transport.number, now, found, odd) if odd else set()
            suspects = wrong if look == 0 else suspects & wrong
            if not suspects:
                break
        self.compared += len(before)
        for node in suspects:
            await self._judge(group, node)
        return end

    async def _ask(self, group: StreamGroup, first: int, end: int, last: int) -> dict[int, Rows]:
        raft = group.raft
        nodes = ready_to_lead(raft) if raft is not None else []
        applied = group.replica.applied
        body = RANGE.pack(group.wanted.group, applied, first, end)
        answers = await asyncio.gather(
            *(self.transport.call(node, "digest", body) for node in nodes), return_exceptions=True
        )
        found = {}
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, bytes):
                there, its_last = END.unpack_from(answer)
                found[node] = unpack(answer[END.size :])
                found[node][LAST] = its_last if there == applied else last
        return found

    async def _digest(self, sender: int, body: bytes) -> bytes:
        """The leader asks for a slice of what is here."""
        number, applied, first, end = RANGE.unpack(body)
        group = self.groups.groups.get(number)
        for _ in range(int(WAIT_SECONDS / POLL_SECONDS)):
            if group is None or group.replica.applied >= applied:
                break
            await asyncio.sleep(POLL_SECONDS)
        store = group.replica.store if group is not None else None
        if group is None or store is None or store.closed or group.replica.applied < applied:
            raise CallFailed("the replica is not there, or behind")
        rows, _ = rows_of(store, first, end, 2 * SLICE)
        return END.pack(group.replica.applied, store.last_seq) + pack(rows)

    async def _judge(self, group: StreamGroup, node: int) -> None:
        """A majority contradicts a replica."""
        number = group.wanted.group
        if node == self.transport.number:
            log.error(
                "%s: this node's replica is another than the others; another node is to lead",
                group.name,
            )
            self._let_lead(number, group)
            return
        log.error("%s: the replica of another node differs, and is made again", group.name)
        if can_spare(group, node):
            try:
                await self.transport.call(node, "remake", GROUP.pack(number))
            except CallFailed as error:
                log.warning("%s: the replica is not made again: %s; tried again", group.name, error)


def others(group: StreamGroup) -> list[int]:
    """The other voters of a group."""
    raft = group.raft
    return [node for node in raft.log.config.voters if node != raft.node] if raft else []


def can_spare(group: StreamGroup, node: int) -> bool:
    """Whether a majority that leads and has everything is left without a node."""
    raft = group.raft
    if raft is None or not raft.is_leader or group.stream is None or group.stream.store.lost:
        return False
    having = {raft.node, *ready_to_lead(raft)} - {node}
    return 2 * len(having) > len(raft.log.config.voters)
