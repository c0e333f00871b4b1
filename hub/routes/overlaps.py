"""Messages that a client hears at its new node while its old one still keeps them for it, too.

Where somebody else at the new node listens to the inbox, the others send there all the time, and to
the old node until they have heard of the client's next subscription. So for that moment a message
reaches the client by its new node, and again with what was kept. Who sends says on the same route
when the moment is over ("heir"): what came before was kept, what comes behind was not. Until all
have said so, what was kept waits.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from headwater.edge.kernel.kernel import CallbackSink
from headwater.hub.routes.route_conn import RouteConn

MARKS_VERSION = 8
"""Of what nodes say to each other: from it on they say when they send the old node nothing more."""
MARKS_SECONDS = 0.5
"""That it may take."""
HEARD_MAX = 1000
"""As many as a node keeps for one inbox."""

Message = tuple[bytes, bytes, bytes, bytes]
"""Subject, payload, reply, headers."""


class Overlap(CallbackSink):
    """Listens beside a client that has just subscribed to a kept inbox again, on this node.

    `awaited` are the routes on which others will say that they send the old node nothing more.
    """

    def __init__(self, subject: bytes, awaited: set[RouteConn]) -> None:
        CallbackSink.__init__(self, subject, self._heard_by_client)
        self._awaited = awaited
        self._heard: Counter[Message] = Counter()
        self._held: list[tuple[Message, Callable[[], None]]] = []

    def ends(self, conn: RouteConn) -> None:
        """What follows on this route is sent to nobody else."""
        self._awaited.discard(conn)
        if not self._awaited:
            self.stop_waiting()

    def stop_waiting(self) -> None:
        """Wait no more: deliver what is held and was not heard."""
        self._awaited.clear()
        held, self._held = self._held, []
        for message, deliver in held:
            self.hand(message, deliver, True)

    def hand(self, message: Message, deliver: Callable[[], None], alone: bool) -> None:
        """Have a message that was kept delivered, unless the client has it. It need not wait when
        the client is alone: nobody else's messages come here."""
        if self._awaited and (self._held or not alone):
            self._held.append((message, deliver))
        elif message not in self._heard:
            deliver()
        else:
            self._heard[message] -= 1
            if not self._heard[message]:
                del self._heard[message]

    def _heard_by_client(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> bool:
        """As of CallbackSink."""
        if sender in self._awaited and len(self._heard) < HEARD_MAX:
            self._heard[subject, payload, reply, headers] += 1
        return False
