"""What a leader has handed out to its own clients in a turn in which it stood still.

A process may be stopped at any instruction, so between a message that it hands out and the write
to its client's socket. When it goes on, another node may lead the stream, and the message may have
gone to somebody else, who acknowledged it. So what was handed out is written while no other node
can lead: as long as the lease lasts (`leadership`). Behind that the other replicas are asked first.
Clients of a stream that another node leads by now are cut off; to them it is a line that broke.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from headwater.edge.kernel.kernel import Kernel
from headwater.hub.routes.unsent import hold_deliveries, send_again

CUT = "Stale Connection"
"""Why the connection of a client ends, as monitoring shows it."""

log = logging.getLogger("headwater.streams")


class HeldClient:
    """A client to which nothing is sent until so many groups have said who leads."""

    def __init__(self, output: Any, groups: int) -> None:
        self.output = output
        self.groups = groups
        self.lost = False
        """Whether another node leads one of them."""


class HeldDeliveries:
    """Of one node. `led()` are the groups of streams that live here, each with `stream` and
    `confirm`."""

    def __init__(self, kernel: Kernel, led: Callable[[], Iterable[Any]]) -> None:
        self.kernel = kernel
        self.led = led

    def stood(self) -> None:
        """A turn ends so late that another node may lead what was handed out in it."""
        for output, names in hold_deliveries(self.kernel):
            asked = [group for group in self.led() if group.stream.name in names]
            client = HeldClient(output, len(asked))
            if not asked:
                send_again(self.kernel, output)
            for group in asked:
                group.confirm(partial(self._heard, client))

    def _heard(self, client: HeldClient, leads: bool) -> None:
        client.groups -= 1
        client.lost = client.lost or not leads
        if client.groups:
            return
        if client.lost:
            log.info(
                "a client is cut off: this node stood still before it sent what it had handed out, "
                "and another one leads the stream now"
            )
            client.output.close(CUT)
        else:
            send_again(self.kernel, client.output)
