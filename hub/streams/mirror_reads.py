"""Replicas of a mirror answer direct gets of its origin's name, as its leader does.

Only the leader, which follows the origin, knows whether the mirror lacks little of it. It says so
to every node once in a term, and to each that comes later. Replicas believe it for that term.
"""

import msgspec

from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.stream.stream import Stream
from headwater.hub.cluster.transport import Transport
from headwater.hub.streams.notice import Notice
from headwater.hub.streams.stream_groups import StreamGroups

NEAR_MAX = 10_000
"""Mirrors of which is remembered what their leaders have said."""


class MirrorReads:
    """Of one node."""

    def __init__(
        self, jetstream: NodeJetStream, transport: Transport, groups: StreamGroups
    ) -> None:
        self.jetstream = jetstream
        self.transport = transport
        self.groups = groups
        self._near: dict[int, int] = {}
        """By group: in which term its leader has said so."""
        jetstream.on_near = self._is_near
        groups.near_in = lambda group: self._near.get(group, -1)
        transport.handlers[b"near"] = self._heard
        transport.watchers.append(self._peer_changed)

    def _is_near(self, stream: Stream) -> None:
        """A mirror that is led here lacks little."""
        body = self._notice(stream)
        for number in list(self.transport.conns) if body else ():
            self.transport.send(number, b"near", body)

    def _notice(self, stream: Stream) -> bytes:
        """What is said of a mirror that is led here; b"" for one without replicas."""
        group = self.groups.groups.get(stream.group)
        if group is None or not stream.config.mirror_direct:
            return b""
        named = (stream.account.jetstream.name, stream.name, stream.group)
        return msgspec.msgpack.encode(Notice(*named, group.led_in))

    def _peer_changed(self, number: int, there: bool) -> None:
        if not there:
            return
        for group in self.groups.groups.values():
            stream = group.stream
            driver = stream.origin_driver if stream is not None else None
            if stream is not None and driver is not None and driver.near:
                body = self._notice(stream)
                if body:
                    self.transport.send(number, b"near", body)

    def _heard(self, number: int, body: memoryview) -> None:
        """Another node leads a mirror that lacks little."""
        try:
            notice = msgspec.msgpack.decode(body, type=Notice)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error
        self._near.pop(notice.group, None)
        self._near[notice.group] = notice.term
        if len(self._near) > NEAR_MAX:
            del self._near[next(iter(self._near))]
        group = self.groups.groups.get(notice.group)
        if group is not None and group.raft is not None:
            group.touch(group.raft)
