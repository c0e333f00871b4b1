"""A stream that lives on one node alone becomes the first state of a group.

Clients notice a pause, as of a leader that hands over. What they say to the stream waits on their
nodes. What this node had heard before is stored and answered first. Then the stream ends, and the
group's first replica goes on with what it had.
"""

from collections.abc import Callable

from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.storage.index.memory import MemoryStore
from headwater.hub.streams.stream_group import StreamGroup

NO_TERM = 0
"""Of a stream that no group has led yet."""


class Adoption:
    """Of the stream `alone`, of which `group` is made. `wanted` says whether it still is to be."""

    def __init__(
        self,
        jetstream: NodeJetStream,
        group: StreamGroup,
        alone: Stream,
        wanted: Callable[[], bool],
    ) -> None:
        self.jetstream = jetstream  # of the node
        self.group = group  # see the class
        self.alone = alone  # see the class
        self.wanted = wanted  # see the class

    def begin(self, then: Callable[[], None]) -> None:
        """Let everybody keep what is for the stream; `then` is called when nothing waits for an
        answer of it, in a later turn."""
        # What other nodes say of the group's messages is about this stream.
        self.alone.group = self.group.wanted.group
        self.group.expect(True)
        senders = self.group.on_leaving(NO_TERM)
        stream_lifecycle.accept_in_flight(self._account(), self.alone, senders)
        self.group.barrier(lambda: self._refuse_publishes(then))

    def _refuse_publishes(self, then: Callable[[], None]) -> None:
        """Whatever other nodes sent here is taken."""
        if not self._goes_on():
            return
        stream_lifecycle.refuse_publishes(self._account(), self.alone)
        if isinstance(self.alone.store, MemoryStore):
            then()
            return
        commit_log = self.jetstream.store().log
        commit_log.when_durable(commit_log.hand_over(), lambda: self._answered(then))

    def _answered(self, then: Callable[[], None]) -> None:
        # PubAcks go out in the turn in which their messages are known to be durable.
        self.jetstream.kernel.loop.call_soon(self._end, then)

    def _end(self, then: Callable[[], None]) -> None:
        if self._goes_on():
            then()

    def _goes_on(self) -> bool:
        if not self.group.expected:
            # The node stops: the next start begins again.
            return False
        if self.wanted() and not self.alone.deleted:
            return True
        self.give_up()
        return False

    def ends(self) -> None:
        """The stream is about to end, in this turn."""
        self.group.on_ending(NO_TERM)

    def give_up(self) -> None:
        """No group is made of the stream for now: it goes on alone, unless it has ended."""
        self.group.expect(False)
        if not self.alone.deleted:
            self.alone.group = 0
            stream_lifecycle.accept_publishes(self._account(), self.alone)

    def _account(self) -> AccountJetStream:
        return self.jetstream.account_js(self.alone.account.name)
